"""Tiles between memory and registers: their addresses in buffers, layouts for these, and the moves themselves.

Imports `registers` and `language`; knows nothing of dots.
"""
