"""Tile programs, the one form between schedules and printed kernels: their statements, text, interpreter and lowering.

Imports `workloads`; knows nothing of schedules or devices.
"""
