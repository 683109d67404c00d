"""ATen's operators on windows: pooling, convolution, and enlarging.

Imports `tracing.values` and the rules beside this room; knows nothing of kernels.
"""
