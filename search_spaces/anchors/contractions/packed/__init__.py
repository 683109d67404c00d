"""Contractions on a CPU: packed operands, cache tiles, register tiles (GotoBLAS, BLIS).

Imports decisions and programs; knows nothing of GPUs.
"""
