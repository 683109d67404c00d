"""Pieces of pointwise programs: which axes their tiles have, and how points are written out.

Knows no anchor.
"""
