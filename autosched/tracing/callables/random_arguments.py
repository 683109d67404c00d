"""Random data for the arguments of traced functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from autosched.checking import random_integers, random_segments
from autosched.checking.histograms import set_ends, timed_ends
from autosched.checking.random_inputs import SMALL_INTEGERS, drawn, drawn_range, indexed_sizes, segmented
from autosched.machine.memory import memory_for
from autosched.tracing.callables.function import TracedFunction
from autosched.tracing.values.fallbacks import Fallback
from autosched.tracing.values.tensor_reads import MemoryView, overlaps
from autosched.tracing.values.values import Leaf, Value
from search_spaces.workloads.stages import HISTOGRAMS
from search_spaces.workloads.strides import span
from search_spaces.workloads.workload import Tensor as TensorSpec
from search_spaces.workloads.workload import Workload


def random_arguments(traced: TracedFunction, seed: int, device: str | torch.device = "cpu") -> list[Tensor]:
    """Arguments drawn as by `checking.random_inputs`; integers that are no indices are from -8 to 8, or from 1 to 8
    where they are divisors; positions that PyTorch does not check are 0; bounds of segments are sorted, and cut all
    of their axis.

    Raises:
        OutOfMemoryError: they do not fit in memory.
    """
    sizes = _sizes(traced, indexed_sizes)
    tensors = [TensorSpec(a.name, a.shape, a.dtype, a.strides) for a in traced.arguments if _is_plain(a)]
    ranges = {t.name: drawn_range(t, SMALL_INTEGERS, sizes) for t in tensors}
    if any(random_integers.divides(s.assembled.workload) for s in traced.steps if s.assembled):
        ranges = {n: (max(first, 1), end) if first < 0 else (first, end) for n, (first, end) in ranges.items()}
    ranges |= {t.name: (0, 1) for t in tensors if t.name in traced.on_trust}
    made = drawn(traced.label, tensors, seed, device, ranges)
    plain = iter(made)
    generator = torch.Generator(device=device).manual_seed(seed)
    arguments = [next(plain) if _is_plain(a) else _drawn(a, generator) for a in traced.arguments]
    set_ends(arguments, random_bounds(traced, arguments, seed))
    return arguments


def random_bounds(traced: TracedFunction, arguments: Sequence[Tensor], seed: int) -> dict[int, Tensor]:
    """Random bounds of segments in the place of the arguments that are such, by their numbers."""
    ends, found = _sizes(traced, segmented), dict[int, Tensor]()
    for number, (a, given) in enumerate(zip(traced.arguments, arguments, strict=True)):
        if a.name in traced.bounds:
            found[number] = traced.bounds[a.name].drawn(given.clone(), seed)
        elif a.name in ends and _is_plain(a):
            found[number] = random_segments.drawn(given.numel(), ends[a.name], seed).reshape(given.shape)
    return found


def timed_bounds(traced: TracedFunction, arguments: Sequence[Tensor]) -> Mapping[str, Mapping[int, Tensor]]:
    """Bounds of segments for timing, for the arguments that are such, by histogram: those of its kernels."""
    names = {name for workload in traced.launched for name in timed_ends(workload)}
    return {name: random_bounds(traced, arguments, n) for n, name in enumerate(HISTOGRAMS) if name in names}


def unknown_integers(traced: TracedFunction) -> bool:
    """True for integer arguments without a known range, unlike indices: PyTorch may find them out of range."""
    known = {*_sizes(traced, indexed_sizes), *_sizes(traced, segmented)} - _given_to_pytorch(traced)
    return any(_is_integer(a) and a.name not in {*known, *traced.bounds} for a in traced.arguments)


def _given_to_pytorch(traced: TracedFunction) -> set[str]:
    """The integer arguments given to PyTorch, and those that such integers are computed from."""
    rest = [o for value in traced.made if isinstance(value, Fallback) for o in value.operands]
    found: set[Value] = set()
    while rest:
        value = rest.pop()
        if _is_integer(value) and value not in found:
            found.add(value)
            rest += value.operands
    return {value.name for value in found}


def _is_integer(value: Value) -> bool:
    kind = getattr(torch, value.dtype, torch.bool)
    return not (kind.is_floating_point or kind.is_complex or kind == torch.bool)


def with_least_integers(tensors: list[Tensor]) -> Iterator[list[Tensor]]:
    """The arguments with integers that index almost any tensor: 0 and 1, and then 0 alone."""
    for bound in (2, 1):
        below = partial(torch.remainder, other=bound)
        yield [_in_memory(t, below) if _is_of_integers(t) else t for t in tensors]


def _is_of_integers(tensor: Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def positive(tensor: Tensor) -> Tensor:
    """The argument with floating-point numbers that have roots and logarithms, where PyTorch can make them."""
    return _in_memory(tensor, torch.abs) if tensor.is_floating_point() and tensor.dtype.itemsize > 1 else tensor


def _in_memory(tensor: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """A tensor whose elements are changed, and lie as they did, also where several are the same one."""
    if not tensor.numel():
        return tensor
    memory = tensor.as_strided((span(tuple(tensor.shape), tensor.stride()),), (1,))
    return change(memory).as_strided(tensor.shape, tensor.stride())


def _sizes(traced: TracedFunction, of: Callable[[Workload], Mapping[str, int]]) -> dict[str, int]:
    """The arguments that kernels use as inputs of a kind, and the smallest size that goes with each."""
    sizes: dict[str, int] = {}
    for assembled in (step.assembled for step in traced.steps if step.assembled):
        known = of(assembled.workload)
        for view, given in zip(assembled.inputs, assembled.workload.inputs, strict=True):
            if given.name in known:
                size = known[given.name]
                sizes[view.value.name] = min(size, sizes.get(view.value.name, size))
    return sizes


def _is_plain(leaf: Leaf) -> bool:
    """True if it may be the input of a kernel."""
    return 0 not in leaf.shape and leaf.readable and not overlaps(MemoryView(leaf, leaf.shape, leaf.strides, 0))


def _drawn(leaf: Leaf, generator: torch.Generator) -> Tensor:
    """An argument that no kernel reads directly: without elements, of another type, or with overlapping elements."""
    dtype: torch.dtype = getattr(torch, leaf.dtype)
    count = 0 if 0 in leaf.shape else span(leaf.shape, leaf.strides)
    with memory_for(f"the elements of {leaf.name}", count * dtype.itemsize, generator.device):
        if dtype.is_floating_point or dtype.is_complex:
            kind = dtype if dtype.itemsize > 1 else torch.float32
            made = torch.randn((count,), generator=generator, dtype=kind, device=generator.device)
        else:
            end = 2 if dtype == torch.bool else SMALL_INTEGERS
            made = torch.randint(0, end, (count,), generator=generator, device=generator.device)
        return made.to(dtype).as_strided(leaf.shape, leaf.strides)
