"""Labelled runs that use something up, on purpose: is it told, is it the right thing, and how soon?"""
