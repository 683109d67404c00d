"""Translation of a graph of ATen operators into values, node by node.

Imports `tracing.capture`, `tracing.operators` and `tracing.values`; knows nothing of kernels.
"""
