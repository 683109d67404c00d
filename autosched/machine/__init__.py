"""The device that is here: what it is, how it is doing, and how calls are timed on it.

Imports no other room; knows nothing of kernels or schedules.
"""
