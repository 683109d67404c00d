"""Common parts of GPU backends: compiled kernels, their parameters, and launches through the CUDA driver.

Knows nothing of the languages that kernels are printed in.
"""
