"""The devices that kernels are tuned for, and what they can and cannot do.

Imports `workloads` and `programs`; knows nothing of schedules.
"""
