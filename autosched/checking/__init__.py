"""Whether a kernel computed what it should, and wrote nothing else: references in float64, and how far from them it may be.

Imports `machine`; knows nothing of how kernels are made.
"""
