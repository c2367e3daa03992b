"""Judgement: from one interval's excess over an ordinary step, from limits and from a whole run to causes."""
