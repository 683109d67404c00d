"""Iterations of loops that have an effect: points that folds gain nothing from, parts of loops, and ranges that are data.

Imported by the rooms of base programs; knows none of them.
"""
