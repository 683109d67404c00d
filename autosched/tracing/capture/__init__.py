"""From a PyTorch function to a graph of ATen operators; of a gradient one that computes points of products again.

Knows nothing of values and kernels.
"""
