"""The Triton backend: tile programs as Triton or Gluon, compiled without a GPU, launched by `backends.gpu`.

Imports `gpu`, `formulas` and `printing`; knows nothing of CUDA C++.
"""
