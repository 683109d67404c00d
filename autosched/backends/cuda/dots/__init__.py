"""Dots of tile programs in CUDA C++: accumulators, operands in shared memory, and matrix instructions.

Imports the printer, `memory`, `registers` and `language`; knows nothing of sketches or workloads.
"""
