"""The search of one workload, and the loop that keeps a measurer busy with one search or several.

Imports what `tuning` may, and of that room what shows progress; knows nothing of traced functions or of results.
"""
