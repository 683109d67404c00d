"""Benchmark of whole models: a suite of them, by every way of running one, in one run.

Imports `torch_compile`; single kernels and functions are measured next door.
"""
