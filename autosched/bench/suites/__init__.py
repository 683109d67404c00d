"""Suites: named operators and functions, read from files; those that ship are JSON files here.

Knows nothing of tuning or timing.
"""
