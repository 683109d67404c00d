"""Search spaces, their points, and the knobs that a schedule is made of.

Imports `programs`, `devices` and `workloads`; knows no sketch.
"""
