"""Kernels as Python files of their own, which need PyTorch and Triton or cuda-bindings, and autosched no more.

Imports `replaying` and what that stands on; knows nothing of search or comparing.
"""

from autosched.standalone.file import export

__all__ = ["export"]
