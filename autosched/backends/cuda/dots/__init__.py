"""Dots of tile programs in CUDA C++: their accumulators, operands in shared memory, and the instructions that multiply.

May import registers and language; knows nothing of sketches or workloads.
"""
