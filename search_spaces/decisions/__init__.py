"""Decisions: each module is one choice about a kernel, independent of its computation.

A module gives the values, their legality besides others, and the effect: a rewrite of the tile program, shown
before → after in its docstring. Anchors make the program that the decisions rewrite, and say which of them apply.
Rooms hold those about tiles, programs, memory and loops.

Imports programs, schedules, devices and workloads; knows no anchor.
"""
