"""The CPU backend: tile programs as LLVM IR, compiled and run in this process.

Imports `backends.formulas` and what is common to backends; knows nothing of GPUs.
"""
