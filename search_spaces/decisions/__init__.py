"""Decisions: each module is one thing that may be decided about a kernel, whatever the kernel computes.

A module gives the values, what they may be together with others, and the effect: a rewrite of the tile program, shown
before → after in its docstring. Anchors make the program that the decisions rewrite, and say which of them apply.

Imports programs, schedules, devices and workloads; knows no anchor.
"""
