"""Warp-specialised chains of dots: some operands are computed in registers, from the sums of other dots.

Imports what the other kernels in Gluon are printed with.
"""
