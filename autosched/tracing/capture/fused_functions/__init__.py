"""PyTorch's fused functions, taken apart into what kernels are cut from, or kept whole for a library.

Knows no values.
"""
