"""Programs of reductions and scans of rows: resident, streamed or shared rows, and their folds.

Imports `points` and `thread_tiles` of its parent; knows no anchor.
"""
