"""Random data for a workload's inputs: normal numbers, integers whose sums of products stay exact, and indices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch

from autosched.checking import random_integers, random_segments
from autosched.machine.element_types import torch_dtype
from autosched.machine.memory import memory_for
from search_spaces import Stage, Workload
from search_spaces import Tensor as TensorSpec
from search_spaces.workloads.dtypes import is_float, is_integer, range_of
from search_spaces.workloads.exponents import ONE, exponents_of
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Gather, Integer, Position
from search_spaces.workloads.expressions.operators import COMPARISONS
from search_spaces.workloads.expressions.walking import distinct, gathers, segments

# Numbers drawn at once, in float32: narrow ones take little more memory than their own.
_AT_ONCE = 2**26
# Bound of integers that are neither multiplied nor used as indices: few values, so that some are equal.
SMALL_INTEGERS = 8


def random_inputs(workload: Workload, seed: int, device: str | torch.device = "cpu") -> list[torch.Tensor]:
    """Fresh data for every input, in order, of the declared shapes, element types and strides.

        input                                           distribution
        floating point                                  standard normal, rounded to the type
        boolean                                         true or false, equally often
        integer, used as an index                       uniform within the dimension
        integer, compared with positions                uniform among them
        integer, the bound of a segment                 sorted, up to the number of positions (`random_segments`)
        integer, computed with as an integer            any value of the type
        uint8, the exponent of a power of two           from 2^-8 to 2^8
        int8, multiplied or computed with in float32    symmetric about 0, as wide as sums of products fit int32
        other integers                                  uniform from -8 to 8, uint8 from 0

    Raises:
        OutOfMemoryError: they do not fit in memory.
    """
    sizes = {**_compared_sizes(workload), **indexed_sizes(workload)}
    exact = random_integers.exactly_read(workload)
    ranges = {t.name: drawn_range(t, _largest_integer(workload), sizes) for t in workload.inputs}
    ranges |= dict.fromkeys(exponents_of(workload), (ONE - SMALL_INTEGERS, ONE + SMALL_INTEGERS + 1))
    anything = dict.fromkeys(exact - sizes.keys())
    made = drawn(workload.label, workload.inputs, seed, device, {**ranges, **anything})
    for number, ends in random_ends(workload, seed).items():
        made[number].copy_(ends)
    return made


def telling_seeds(workload: Workload, seed: int) -> Sequence[int]:
    """This seed and others, whose ends of segments are together of every kind; this one alone without segments."""
    return random_segments.seeds_of_all_ways(seed) if segmented(workload) else (seed,)


def random_ends(workload: Workload, seed: int, own: Mapping[str, int] | None = None) -> dict[int, torch.Tensor]:
    """Ends of segments for each input of such, by its number: int64, on the CPU. `own`: seeds of some, by name."""
    seeds = own or {}
    positions = segmented(workload)
    return {
        number: random_segments.drawn(t.elements, min(positions[t.name], range_of(t.dtype)[1]), seeds.get(t.name, seed))
        for number, t in enumerate(workload.inputs)
        if t.name in positions
    }


def empty(tensor: TensorSpec, device: str | torch.device) -> torch.Tensor:
    """Memory for a tensor of a workload, with its strides and element type; its elements are not set."""
    return torch.empty_strided(tensor.shape, tensor.effective_strides, dtype=torch_dtype(tensor.dtype), device=device)


def drawn(
    label: str,
    tensors: Sequence[TensorSpec],
    seed: int,
    device: str | torch.device,
    ranges: Mapping[str, tuple[int, int] | None],
) -> list[torch.Tensor]:
    """Fresh data for every tensor, integers from the range of its name; None: the whole range of the type.

    Raises:
        OutOfMemoryError: they do not fit in memory; the message calls them the inputs of `label`.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    needed = sum(t.span * torch_dtype(t.dtype).itemsize for t in tensors)
    with memory_for(f"the inputs of {label}", needed, generator.device):
        return [_drawn(t, generator, ranges[t.name]) for t in tensors]


def drawn_range(tensor: TensorSpec, largest: int, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Range of an input's random integers: the first, and the one after the last."""
    if tensor.name in sizes:
        return 0, min(sizes[tensor.name], range_of(tensor.dtype)[1] + 1)
    if tensor.dtype in ("bool", "uint8"):
        return 0, 2 if tensor.dtype == "bool" else SMALL_INTEGERS + 1
    bound = largest if tensor.dtype == "int8" else SMALL_INTEGERS
    return -bound, bound + 1


def _drawn(tensor: TensorSpec, generator: torch.Generator, integers: tuple[int, int] | None) -> torch.Tensor:
    """`integers`: their range; None for that of their type."""
    # Gaps between strided rows are filled, too: a kernel that reads them computes something else.
    shape = tensor.shape if tensor.strides is None else (tensor.span,)
    if integers is None:
        drawn = random_integers.drawn(shape, torch_dtype(tensor.dtype), generator)
    elif not is_float(tensor.dtype):
        held = torch_dtype(tensor.dtype) if is_integer(tensor.dtype) else torch.uint8
        drawn = torch.randint(*integers, shape, generator=generator, device=generator.device, dtype=held)
        drawn = drawn.to(torch_dtype(tensor.dtype))
    else:
        drawn = torch.empty(shape, device=generator.device, dtype=torch_dtype(tensor.dtype))
        for part in drawn.view(-1).split(_AT_ONCE):
            part.copy_(torch.randn(part.shape, generator=generator, device=generator.device, dtype=torch.float32))
    return drawn if tensor.strides is None else drawn.as_strided(tensor.shape, tensor.strides)


def _largest_integer(workload: Workload) -> int:
    """The largest int8 whose square can be summed by every reduction of the workload without leaving int32."""
    longest = max((math.prod(a.extent for a in s.reduction.axes) for s in workload.stages if s.reduction), default=1)
    return min(127, math.isqrt((2**31 - 1) // longest))


def indexed_sizes(workload: Workload) -> dict[str, int]:
    """The inputs whose elements are used as indices, and the size of the smallest dimension that they index."""
    shapes = {t.name: t.shape for t in workload.inputs}
    indices = (
        (index, size)
        for gather in (g for s in workload.stages for g in gathers(s.expression))
        for index, size in zip(gather.index, shapes[gather.tensor], strict=True)
        if not isinstance(index, Affine)
    )
    return _least_sizes(workload, indices)


def segmented(workload: Workload) -> dict[str, int]:
    """The inputs of ends of segments, and the least number of positions that they divide."""
    found: dict[str, int] = {}
    for stage in workload.stages:
        for segment in segments(stage.expression):
            at = segment.position
            count = at.maximum(stage.extents) + 1 if isinstance(at, Affine) else math.prod(stage.shape)
            found[segment.tensor] = min(count, found.get(segment.tensor, count))
        for tensor, count in _least_sizes(workload, _cut_positions(stage)).items():
            found[tensor] = min(count, found.get(tensor, count))
    lines = {t.name for t in workload.inputs if len(t.shape) == 1}
    return {name: count for name, count in found.items() if name in lines}


def _cut_positions(stage: Stage) -> Iterator[tuple[Expression, int]]:
    """Inputs compared with positions from both sides, begin <= t and t < end, and the number of these."""
    inside = [part for part in distinct(stage.expression) if isinstance(part, Apply) and part.operator in ("le", "lt")]
    begins = {a for part in inside if _positions(part.arguments[1], stage.extents) for a in _read(part.arguments[0])}
    for part in inside:
        if count := _positions(part.arguments[0], stage.extents):
            yield from ((a, count) for a in _read(part.arguments[1]) if a.tensor in {b.tensor for b in begins})


def _read(e: Expression) -> list[Access]:
    return [part for part in distinct(e) if isinstance(part, Access)]


def _compared_sizes(workload: Workload) -> dict[str, int]:
    """The inputs whose elements are compared with positions, and the smallest number of these."""
    return _least_sizes(workload, (found for s in workload.stages for found in _compared_with_positions(s)))


def _least_sizes(workload: Workload, used: Iterable[tuple[Expression, int]]) -> dict[str, int]:
    """For the inputs of integers in these expressions the least number that goes with them."""
    stages = {s.name: s for s in workload.stages}
    sizes: dict[str, int] = {}

    def note(index: Expression, size: int) -> None:
        match index:
            case Access(tensor) if tensor in stages:
                note(stages[tensor].expression, size)
            case Access(tensor) | Gather(tensor):
                sizes[tensor] = min(size, sizes.get(tensor, size))
            case Apply("mul", (argument, Integer(factor))) if factor > 0:
                # So many blocks of positions.
                note(argument, max(1, size // factor))
            case Apply(_, arguments):
                for argument in arguments:
                    note(argument, size)

    for index, size in used:
        note(index, size)
    return {t.name: sizes[t.name] for t in workload.inputs if t.name in sizes and is_integer(t.dtype)}


def _compared_with_positions(stage: Stage) -> Iterator[tuple[Expression, int]]:
    """Operands of comparisons with positions of a stage, and the number of these: few other numbers would be equal."""
    for part in distinct(stage.expression):
        if isinstance(part, Apply) and part.operator in COMPARISONS:
            for side, other in (part.arguments, part.arguments[::-1]):
                if (count := _positions(side, stage.extents)) > 1:
                    yield other, count


def _positions(side: Expression, extents: Mapping[str, int]) -> int:
    """The number after the largest position; 0 for anything else."""
    match side:
        case Apply("to_integer", (Position(index),)) | Position(index):
            return index.maximum(extents) + 1
        case _:
            return 0
