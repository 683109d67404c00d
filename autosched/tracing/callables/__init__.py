"""Callables of users: traced functions, with gradients, with a size that changes, and the kernels that they run.

Imports all of `tracing`, and `kernels`.
"""
