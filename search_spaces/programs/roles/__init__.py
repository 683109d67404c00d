"""Roles of warps: a producer that loads tiles into rings of shared memory, and groups of warps that consume them.

Imports programs and devices; knows no backend, and nothing of how schedules are made.
"""
