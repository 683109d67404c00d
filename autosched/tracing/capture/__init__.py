"""Capture of a PyTorch function as a graph of ATen operators; gradients recompute points of products.

Knows nothing of values and kernels.
"""
