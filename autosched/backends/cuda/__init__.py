"""CUDA C++ with inline PTX: tile programs printed by statement, and compiled by NVRTC without nvcc or headers.

Imports `gpu`, `formulas` and `printing`; knows nothing of Triton.
"""
