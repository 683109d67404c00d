"""Comparison of whole PyTorch functions with what computes them.

Imports PyTorch and `machine`; knows neither workloads nor how functions are traced.
"""
