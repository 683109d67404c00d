"""Stand-alone kernels and models: Python files that need PyTorch and Triton or cuda-bindings, but not autosched.

Imports `replaying` and what that stands on; knows nothing of search or comparing.
"""

from autosched.standalone.file import export

__all__ = ["export"]
