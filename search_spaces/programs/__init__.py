"""Tile programs: the one form between schedules and printed kernels; its text, its interpreter, and how bodies are written.

Imports `workloads`; knows nothing of schedules or devices.
"""
