"""`tune_many`: several searches over one session and one cost model, and the allocation of trials to them.

Imports what `tuning` may, and of that room the search and its results.
"""
