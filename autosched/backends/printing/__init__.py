"""What printers share: names and nested blocks of text, what grids and loops count, and what programs are
rewritten to before they are printed.

Knows nothing of the languages that are printed.
"""
