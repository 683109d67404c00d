"""The devices that kernels are tuned for, and their abilities.

Imports `workloads` and `programs`; knows nothing of schedules.
"""
