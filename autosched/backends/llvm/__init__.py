"""The CPU backend: tile programs as LLVM IR, compiled and run in this process.

Imports `backends.formulas` and the common parts of backends; knows nothing of GPUs.
"""
