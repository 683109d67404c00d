"""Kernels that ask for producer warps, for compute capability 9.0: a ring filled by TMA, dots of warp groups, clusters.

Imports the other rooms of the CUDA printer; only `source` and `limits` import it.
"""
