"""Warp-specialised contractions in Gluon, Triton's language of warps and layouts.

Imports `backends.triton.language` and the parts that it shares with the printer of Triton.
"""
