"""`tune`: the loop of a search, what it starts from, how far it is, and what it found.

Imports everything but the rooms of commands, benchmarks, comparisons and stand-alone files.
"""
