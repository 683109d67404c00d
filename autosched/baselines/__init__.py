"""Baselines: the same operator by PyTorch and by the vendor's libraries.

Imports `checking`; knows nothing of how kernels are made.
"""
