"""Suites: named things to compute, read from files; those that ship lie here as JSON.

Knows nothing of tuning or timing.
"""
