"""From a graph of ATen operators to values, node by node.

Imports `tracing.capture`, `tracing.operators` and `tracing.values`; knows nothing of kernels.
"""
