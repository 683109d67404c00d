"""Rounding error of a correct kernel: the analysis, and its rules for reductions and pointwise operators.

Imports the references of `checking`; knows nothing of tolerances.
"""
