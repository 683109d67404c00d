"""Where to cut: which values are stored, so that one kernel computes each, and the workload of that kernel.

Imports `tracing.values`; knows nothing of ATen.
"""
