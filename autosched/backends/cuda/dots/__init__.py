"""Dots of tile programs in CUDA C++: their accumulators, operands in shared memory, and the instructions that multiply.

Imports the printer, `memory`, `registers` and `language`; knows nothing of sketches or workloads.
"""
