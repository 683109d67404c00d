"""Parts of pointwise programs: the axes of their tiles, and unrolling.

Knows no anchor.
"""
