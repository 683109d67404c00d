"""Whether a kernel computed what it should, and wrote nothing else: references in float64, and what they allow.

Imports `machine`; knows nothing of how kernels are made.
"""
