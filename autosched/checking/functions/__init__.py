"""Comparison of whole PyTorch functions with their compiled forms.

Imports PyTorch and `machine`; knows neither workloads nor how functions are traced.
"""
