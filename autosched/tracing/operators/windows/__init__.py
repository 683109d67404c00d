"""ATen's operators on windows: pooling, convolution, and enlarging.

Imports `tracing.values` and the other rooms' rules; knows nothing of kernels.
"""
