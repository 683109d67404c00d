"""`tune_many`: several searches over one session and one cost model, and which of them is given the next trials.

Imports what `tuning` may, and of that room the search and its results.
"""
