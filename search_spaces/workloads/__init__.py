"""The computation: workloads, the expressions of their stages, element types and strides; equality of workloads.

Imports no other room; knows nothing of devices or schedules.
"""
