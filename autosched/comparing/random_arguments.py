"""Random data for the arguments of traced functions."""

from __future__ import annotations

import torch

from autosched.checking import random_integers
from autosched.checking.random_inputs import SMALL_INTEGERS, drawn, drawn_range, indexed_sizes
from autosched.tracing import TracedFunction
from search_spaces.workloads.workload import Tensor as TensorSpec


def random_arguments(traced: TracedFunction, seed: int, device: str | torch.device = "cpu") -> list[torch.Tensor]:
    """As `checking.random_inputs` draws; all integers that are no indices are from -8 to 8, or from 1 to 8 where it
    divides integers.

    Raises:
        OutOfMemoryError: they do not fit in memory.
    """
    sizes: dict[str, int] = {}
    for assembled in (step.assembled for step in traced.steps if step.assembled):
        indexed = indexed_sizes(assembled.workload)
        for view, given in zip(assembled.inputs, assembled.workload.inputs, strict=True):
            if given.name in indexed:
                size = indexed[given.name]
                sizes[view.value.name] = min(size, sizes.get(view.value.name, size))
    tensors = [TensorSpec(a.name, a.shape, a.dtype, a.strides) for a in traced.arguments]
    ranges = {t.name: drawn_range(t, SMALL_INTEGERS, sizes) for t in tensors}
    if any(random_integers.divides(s.assembled.workload) for s in traced.steps if s.assembled):
        ranges = {n: (max(first, 1), end) if first < 0 else (first, end) for n, (first, end) in ranges.items()}
    return drawn(traced.label, tensors, seed, device, ranges)
