"""Devices of this machine: description, telemetry, and timing of calls.

Imports no other room; knows nothing of kernels or schedules.
"""
