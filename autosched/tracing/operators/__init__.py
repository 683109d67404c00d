"""The meaning of ATen's operators: rules from arguments to values, a module for every kind of operator.

Imports `tracing.values`; knows nothing of kernels.
"""
