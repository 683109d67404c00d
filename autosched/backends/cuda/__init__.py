"""CUDA C++ with inline PTX: tile programs printed by statement, and compiled by NVRTC without nvcc or headers.

Imports `gpu` and `formulas`; knows nothing of Triton.
"""
