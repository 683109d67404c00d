"""`tune`: the loop of a search, what it starts from, how far it is, what it found; and `predict`.

Imports everything but the rooms of commands, benchmarks, comparisons and stand-alone files.
"""
