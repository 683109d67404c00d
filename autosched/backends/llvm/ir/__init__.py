"""LLVM IR as text: values, arithmetic on vectors, loops and memory accesses.

Knows nothing of kernels.
"""
