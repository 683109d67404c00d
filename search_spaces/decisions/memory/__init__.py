"""Decisions about memory: the ways in which tensors are loaded and stored, packed, prefetched and kept in caches.

Imports programs, schedules, devices and the decision itself; knows no anchor.
"""
