"""Tile programs, the one form between schedules and printed kernels: as text, interpreted, and how they are written.

Imports `workloads`; knows nothing of schedules or devices.
"""
