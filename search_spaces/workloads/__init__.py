"""What to compute: workloads, the expressions of their stages, element types and strides.

Imports no other room; knows nothing of devices or schedules.
"""
