"""Measurement on this machine: candidates compile in a pool of processes, and run in one that may crash.

Imports `backends`, `checking`, `baselines` and `machine`; knows nothing of search.
"""
