"""Checks of a kernel's results and of the memory that it wrote: references in float64, and their tolerances.

Imports `machine`; knows nothing of how kernels are made.
"""
