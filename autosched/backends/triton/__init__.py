"""The Triton backend: tile programs as Triton or Gluon, compiled without a GPU, launched by `backends.gpu`.

Imports `backends.formulas`, `backends.gpu` and what is common to backends.
"""
