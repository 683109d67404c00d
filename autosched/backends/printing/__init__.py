"""Common parts of printers: names and nested blocks of text, counts of grids and loops, and rewrites of programs.

Knows nothing of the languages that are printed.
"""
