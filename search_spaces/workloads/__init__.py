"""What to compute: workloads, the expressions of their stages, element types and strides; and when two are the same.

Imports no other room; knows nothing of devices or schedules.
"""
