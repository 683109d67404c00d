"""Iterations of loops that have an effect: points from which folds gain nothing, parts of loops, ranges that are data.

Imported by the rooms of base programs; knows none of them.
"""
