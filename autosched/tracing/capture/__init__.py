"""From a PyTorch function to a graph of ATen operators.

Knows nothing of what the operators mean.
"""
