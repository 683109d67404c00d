"""Kernels as Python files of their own, which need PyTorch and Triton, and autosched no more."""

from autosched.standalone.file import export

__all__ = ["export"]
