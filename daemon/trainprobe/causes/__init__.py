"""Judgement: from one interval's excess over an ordinary step to the causes that own it."""
