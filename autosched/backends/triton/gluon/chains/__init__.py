"""Warp-specialised chained dots: some operands are computed in registers, from accumulators of other dots.

Imports the printers of other Gluon kernels.
"""
