"""Decisions about loops: pipelined, unrolled, peeled, vectorised, in part left out, and the values that they carry.

Imports programs, schedules, devices and the decision itself; knows no anchor.
"""
