"""Trying configurations on the arguments of a call: running, comparing, timing, and putting the arguments back.

Imports the call and its configurations; knows neither logs nor what is tried next. `launching` loads Triton.
"""
