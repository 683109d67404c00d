"""Bodies of CPU kernels: contractions, and rows in vectorised passes.

Imports `backends.llvm.ir`; knows nothing of compiling.
"""
