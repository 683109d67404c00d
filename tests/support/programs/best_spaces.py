"""Search spaces of the best backend of a target alone: of Triton on the GPUs that it serves."""

from __future__ import annotations

from autosched import backends
from autosched.backends import spaces
from autosched.backends.cuda.backend import CudaBackend
from search_spaces import SearchSpace, Target, Workload, ops


def build(workload: Workload, target: Target) -> SearchSpace:
    """Raises EmptySearchSpaceError as `autosched.backends.spaces.build`."""
    return spaces.build(workload, target, backends.for_target(target)[:1])


def streamed(target: Target) -> SearchSpace:
    """Products of what lanes loaded, which CUDA C++ alone has."""
    product = ops.matmul(5, 70, 320, dtype="float16", layout="nt", epilogue="bias_gelu")
    return spaces.build(product, target, [CudaBackend()]).restricted("streamed_contraction")
