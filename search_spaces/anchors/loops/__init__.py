"""Iterations of a loop that have an effect: the points that folds gain nothing from, and ranges that are data.

Imported by the rooms of base programs; knows none of them.
"""
