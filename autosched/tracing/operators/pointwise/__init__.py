"""ATen's pointwise operators, as expressions of one element.

Imports `tracing.values`; knows nothing of kernels.
"""
