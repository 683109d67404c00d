"""Decisions about tiles: their sizes, the axes that they lie along, and the parts in which they are computed.

Imports programs, schedules, devices and the decision itself; knows no anchor.
"""
