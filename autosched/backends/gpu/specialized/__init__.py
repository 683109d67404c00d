"""Kernels whose warps do different things, taken apart for whoever prints them: what brings, what multiplies, the rest.

Knows nothing of the languages that kernels are printed in.
"""
