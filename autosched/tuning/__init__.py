"""`tune` and `predict`: the search loop, its warm start, progress and results.

Imports everything but the rooms of commands, benchmarks, comparisons and stand-alone files.
"""
