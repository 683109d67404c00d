"""Kernels of a graph's parts that begin while the one before them ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autosched.torch_compile.graphs import on_data
from autosched.torch_compile.kernel_cache import early_kernels
from autosched.torch_compile.parts import Part

# The first kernel of a plan follows on anything.
_FEWEST_LAUNCHES = 2


def with_early_launches(parts: Sequence[Part]) -> tuple[Part, ...] | None:
    """The same parts by such kernels, as far as there are any; None where there are none.

    Raises:
        AutoschedError: a kernel cannot be built, or is not right.
    """
    kernels = [p.choice.kernel for p in parts if p.choice.kernel is not None]
    if sum(len(kernel.traced.launched) for kernel in kernels) < _FEWEST_LAUNCHES:
        return None
    with on_data():
        early = early_kernels(each for kernel in kernels for each in kernel.kernels)
        if not early:
            return None
        return tuple(p if p.choice.kernel is None else replace(p, call=p.choice.kernel.again(early)) for p in parts)
