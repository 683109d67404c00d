"""Algebra of values before they are cut into kernels: rules say what is equal, and each rewriting is one more cut.

It knows values, and the constructors of operators' rules; kernels and their schedules it knows not.
"""
