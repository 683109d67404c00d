"""Pieces of reductions and scans of rows: programs whose rows are resident, streamed or shared, and what they fold.

Imports `points` and `thread_tiles` of its room; knows no anchor.
"""
