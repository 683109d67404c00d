"""Trials of configurations on the arguments of a call: running, comparing, timing, and restoring the arguments.

Imports the call and its configurations; knows neither logs nor the strategy. `launching` loads Triton.
"""
