"""Tiles between memory and registers: where they lie in buffers, which layouts that asks for, and the moves themselves.

Imports `registers` and `language`; knows nothing of dots.
"""
