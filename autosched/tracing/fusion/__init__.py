"""Fusion: the choice of stored values, so that one kernel computes each, and the workload of that kernel.

Imports `tracing.values`; knows nothing of ATen.
"""
