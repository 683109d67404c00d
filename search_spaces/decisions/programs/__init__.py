"""Decisions about the programs of a launch: their number, their order, their warps, and the registers of these.

Imports programs, schedules, devices and the decision itself; knows no anchor.
"""
