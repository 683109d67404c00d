"""Whether what computes a whole PyTorch function gives what PyTorch does.

Imports PyTorch and `machine`; knows neither workloads nor how functions are traced.
"""
