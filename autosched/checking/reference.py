"""The reference: a workload evaluated by PyTorch straight from its expressions, independent of any lowering."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

from autosched.checking import random_integers
from autosched.checking.named_tensors import Named, count, look_up, read, sum_of_products, union
from autosched.checking.scanned import Pieces, piece, pieces_combined, scanned
from autosched.machine.free_memory import memory_for
from search_spaces import Axis, InputError, Scan, Stage, Workload
from search_spaces import Tensor as TensorSpec
from search_spaces.workloads.dtypes import is_float, is_integer, range_of
from search_spaces.workloads.expression import (
    ROUNDINGS,
    WRAPPINGS,
    Access,
    Affine,
    Apply,
    Expression,
    Gather,
    Integer,
    Literal,
    Position,
    gathers,
    is_integral,
)
from search_spaces.workloads.scans import LEFT, RIGHT, unchanging


def _compared(compare: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The comparison as 1 or 0, in the type that arithmetic on its operands has; in float64 of integers."""
    return lambda a, b: compare(a, b).to(torch.result_type(a, b) if a.is_floating_point() else torch.float64)


def _quotient(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    # PyTorch raises where a divisor is 0, and a processor traps on -2^63 / -1.
    safe = torch.where((b == 0) | (b == -1), 1, b)
    return torch.where(b == -1, -a, torch.div(a, safe, rounding_mode="trunc"))


def cut(x: torch.Tensor) -> torch.Tensor:
    """Floating-point numbers without their fraction, as integers; 0 where they are none of 64 bits."""
    return torch.where(x.abs() < 2.0**63, x, 0.0).to(torch.int64)


OPERATIONS: Mapping[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "neg": torch.neg,
    "abs": torch.abs,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "tanh": torch.tanh,
    **dict.fromkeys(("erf", "erf_relative"), torch.erf),
    "sin": torch.sin,
    "cos": torch.cos,
    **{
        name: getattr(torch, name)
        for name in ("exp2", "log2", "log10", "expm1", "log1p", "pow", "sinh", "cosh", "asinh", "acosh", "atanh", "tan")
    },
    **{name: getattr(torch, name) for name in ("asin", "acos", "atan", "atan2", "hypot", "erfc", "lgamma", "digamma")},
    "erfcx": torch.special.erfcx,
    "fmod": torch.fmod,
    "floor": torch.floor,
    "lt": _compared(torch.lt),
    "le": _compared(torch.le),
    "eq": _compared(torch.eq),
    "where": lambda c, a, b: torch.where(c != 0, a, b),
    "quotient": _quotient,
    "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor,
    # Shifts out of range are defined: they shift everything out.
    "shift_left": torch.bitwise_left_shift,
    "shift_right": torch.bitwise_right_shift,
    "to_integer": lambda x: cut(x) if x.is_floating_point() else x.to(torch.int64),
    **{name: lambda x, to=to: x.to(getattr(torch, to)).to(x.dtype) for name, to in {**ROUNDINGS, **WRAPPINGS}.items()},
}

# The integers that inputs are drawn from which are neither multiplied nor used as indices: few, so that some are equal.
SMALL_INTEGERS = 8


def torch_dtype(name: str) -> torch.dtype:
    """The PyTorch element type of the same name as one of `search_spaces.workloads.dtypes`."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def random_inputs(workload: Workload, seed: int, device: str | torch.device = "cpu") -> list[torch.Tensor]:
    """Fresh data for every input, in order, of the declared shapes, element types and strides.

    Standard normal, rounded to the type. Integers are uniform: those that are used as indices within the dimension, of
    the others, where integers are computed with, any that the type has, and where they are multiplied or computed with
    in float32, those of 8 bits symmetric about 0, as large as they may be with no sum of their products beyond int32,
    and other ones from -8 to 8. Booleans are as often true as not.

    Raises:
        OutOfMemoryError: they do not fit in memory.
    """
    sizes, exact = indexed_sizes(workload), random_integers.exactly_read(workload)
    ranges = {t.name: drawn_range(t, _largest_integer(workload), sizes) for t in workload.inputs}
    anything = dict.fromkeys(exact - sizes.keys())
    return drawn(workload.label, workload.inputs, seed, device, {**ranges, **anything})


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
    """Fresh data for every tensor, integers from the range of its name; None: any of the type.

    Raises:
        OutOfMemoryError: they do not fit in memory; the message calls them the inputs of `label`.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    needed = sum(t.span * torch_dtype(t.dtype).itemsize for t in tensors)
    with memory_for(f"the inputs of {label}", needed, generator.device):
        return [_drawn(t, generator, ranges[t.name]) for t in tensors]


def drawn_range(tensor: TensorSpec, largest: int, sizes: Mapping[str, int]) -> tuple[int, int]:
    """The integers, the first and the one after the last, that such an input is drawn from."""
    if tensor.name in sizes:
        return 0, min(sizes[tensor.name], range_of(tensor.dtype)[1] + 1)
    if tensor.dtype in ("bool", "uint8"):
        return 0, 2 if tensor.dtype == "bool" else SMALL_INTEGERS + 1
    bound = largest if tensor.dtype == "int8" else SMALL_INTEGERS
    return -bound, bound + 1


def _drawn(tensor: TensorSpec, generator: torch.Generator, integers: tuple[int, int] | None) -> torch.Tensor:
    """`integers`: the range that they are drawn from; None for any of their type."""
    # What lies between strided rows is drawn with them: a kernel that reads it computes something else.
    shape = tensor.shape if tensor.strides is None else (tensor.span,)
    if integers is None:
        drawn = random_integers.drawn(shape, torch_dtype(tensor.dtype), generator)
    elif not is_float(tensor.dtype):
        held = torch_dtype(tensor.dtype) if is_integer(tensor.dtype) else torch.uint8
        drawn = torch.randint(*integers, shape, generator=generator, device=generator.device, dtype=held)
        drawn = drawn.to(torch_dtype(tensor.dtype))
    else:
        drawn = torch.randn(shape, generator=generator, device=generator.device, dtype=torch.float32)
        drawn = drawn.to(torch_dtype(tensor.dtype))
    return drawn if tensor.strides is None else drawn.as_strided(tensor.shape, tensor.strides)


def _largest_integer(workload: Workload) -> int:
    """The largest int8 whose square can be summed by every reduction of the workload without leaving int32."""
    longest = max((math.prod(a.extent for a in s.reduction.axes) for s in workload.stages if s.reduction), default=1)
    return min(127, math.isqrt((2**31 - 1) // longest))


def indexed_sizes(workload: Workload) -> dict[str, int]:
    """The inputs whose elements are used as indices, and the size of the smallest dimension that they index."""
    shapes = {t.name: t.shape for t in workload.inputs}
    stages = {s.name: s for s in workload.stages}
    sizes: dict[str, int] = {}

    def note(index: Expression, size: int) -> None:
        match index:
            case Access(tensor) if tensor in stages:
                note(stages[tensor].expression, size)
            case Access(tensor) | Gather(tensor):
                sizes[tensor] = min(size, sizes.get(tensor, size))
            case Apply(_, arguments):
                for argument in arguments:
                    note(argument, size)

    for gather in (g for s in workload.stages for g in gathers(s.expression)):
        for index, size in zip(gather.index, shapes[gather.tensor], strict=True):
            if not isinstance(index, Affine):
                note(index, size)
    return {t.name: sizes[t.name] for t in workload.inputs if t.name in sizes and is_integer(t.dtype)}


def evaluate(
    workload: Workload, inputs: Sequence[torch.Tensor], dtype: torch.dtype = torch.float64
) -> tuple[torch.Tensor, ...]:
    """The outputs computed in `dtype` throughout, on the device of the inputs and not rounded to their types.

    Integers are computed in int64, and an output is of that type where it is an expression of integers. In float64 no
    operator rounds: `round_float16` yields its argument, or an infinity where that overflows.

    Raises:
        InputError: the number of inputs or a shape is not the workload's.
    """
    return _run(workload, [held_exactly(x, dtype) for x in inputs], dtype)


def held_exactly(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The tensor in the type that its elements are read from: `dtype`, int64 where they are integers."""
    whole = not tensor.is_floating_point() and tensor.dtype != torch.bool
    return tensor.to(torch.int64 if whole else dtype)


def as_written(workload: Workload, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The outputs as PyTorch eager computes them stage by stage, in the inputs' own element types: a baseline.

    Inputs of 8 bits, which PyTorch has no arithmetic for, or none that we want, are computed with in float32.

    Raises:
        InputError: the number of inputs or a shape is not the workload's.
    """
    computable = [x.to(torch.float32) if x.dtype.itemsize == 1 else x for x in inputs]
    made = _run(workload, computable, torch.float32)
    return tuple(x.to(torch_dtype(t.dtype)) for x, t in zip(made, workload.outputs, strict=True))


def check_shapes(workload: Workload, inputs: Sequence[torch.Tensor]) -> None:
    """Raise InputError unless there is one tensor of the declared shape for every input."""
    if len(inputs) != len(workload.inputs):
        raise InputError(f"{workload.name}: got {len(inputs)} inputs, expected {len(workload.inputs)}")
    for tensor, given in zip(workload.inputs, inputs, strict=True):
        if tuple(given.shape) != tensor.shape:
            raise InputError(
                f"{workload.name}: {tensor.name} has shape {list(given.shape)}, expected {list(tensor.shape)}"
            )


def factors(expression: Expression) -> list[Expression]:
    """The factors of a product, however its multiplications are nested; the expression itself when it is none."""
    if isinstance(expression, Apply) and expression.operator == "mul":
        return [f for argument in expression.arguments for f in factors(argument)]
    return [expression]


def multiplied_factors(summed: Expression) -> list[Expression]:
    """The factors of what is summed, as sums of products have them; integers, which no dot multiplies, as a whole."""
    return [summed] if is_integral(summed) else factors(summed)


def literal(value: float | int, device: torch.device, dtype: torch.dtype = torch.float64) -> Named:
    """A constant. It has no dimension, so that it never widens the element type of what it meets.

    Remembered: to send a number to a GPU takes longer than many a kernel, and a baseline is not to be timed doing that.
    """
    # 0 and -0 are equal, and not the same.
    return _literal(value, math.copysign(1.0, value), device, dtype)


@lru_cache(maxsize=1024)
def _literal(value: float | int, sign: float, device: torch.device, dtype: torch.dtype) -> Named:
    return Named((), torch.tensor(value, dtype=dtype, device=device))


def _run(workload: Workload, inputs: Sequence[torch.Tensor], constants: torch.dtype) -> tuple[torch.Tensor, ...]:
    check_shapes(workload, inputs)
    tensors = {t.name: x for t, x in zip(workload.inputs, inputs, strict=True)}
    known = _Known(tensors, constants, {t.name: outside(t) for t in workload.inputs})
    for stage in workload.stages:
        if stage.scan is None:
            tensors[stage.name] = _stage(stage, known)
        elif stage.name not in tensors:
            tensors |= _scanned(members(workload, stage.scan), known)
    return tuple(tensors[name] for name in workload.output_names)


@dataclass(frozen=True)
class _Known:
    """The tensors computed so far, the type of constants, and what of every input lies outside it."""

    tensors: Mapping[str, torch.Tensor]
    constants: torch.dtype
    outside: Mapping[str, float]


def outside(tensor: TensorSpec) -> float:
    """What a look-up yields where an index is none of its dimension."""
    return math.nan if is_float(tensor.dtype) else 0.0


def _stage(stage: Stage, known: _Known) -> torch.Tensor:
    names = [a.name for a in stage.axes]
    if stage.reduction is None:
        result = _expression(stage.expression, stage, known)
    elif stage.reduction.operator == "sum":
        terms = [_expression(f, stage, known) for f in multiplied_factors(stage.expression)]
        result = sum_of_products(terms, names, {a.name: a.extent for a in stage.reduction.axes})
    elif stage.reduction.operator == "prod":
        result = product_along(_expression(stage.expression, stage, known), stage.reduction.axes)
    else:
        fold = torch.amax if stage.reduction.operator == "max" else torch.amin
        result = extreme(_expression(stage.expression, stage, known), stage.reduction.axes, fold)
    return result.aligned(names).expand(stage.shape)


def members(workload: Workload, scan: Scan) -> list[Stage]:
    """The stages that are scanned together, in the order in which they are combined."""
    stages = {s.name: s for s in workload.stages}
    return [stages[name] for name in scan.members]


def _scanned(group: Sequence[Stage], known: _Known) -> dict[str, torch.Tensor]:
    scan, axes = group[0].scan, [a.name for a in group[0].axes]
    assert scan is not None
    dim, elements = axes.index(scan.axis), [_stage(s, known) for s in group]
    direct = running(scan)
    if direct is not None:
        values = elements[0].flip(dim) if scan.reverse else elements[0]
        found = direct(values, dim)
        return {group[0].name: found.flip(dim) if scan.reverse else found}

    def combine(left: Pieces, right: Pieces, step: int) -> Pieces:
        given = {piece(side, n): x for side, some in ((LEFT, left), (RIGHT, right)) for n, (x,) in enumerate(some)}
        stage, combined = pieces_combined(scan, left[0][0].shape)
        own = [a.name for a in stage.axes]
        whole = _Known(given, known.constants, {})
        return [(_expression(e, stage, whole).aligned(own).expand(stage.shape),) for e in combined]

    made = scanned([(x,) for x in elements], dim, scan.reverse, combine)
    return {s.name: x for s, (x,) in zip(group, made, strict=True)}


def running(scan: Scan) -> Callable[[torch.Tensor, int], torch.Tensor] | None:
    """PyTorch's operator for a scan of one value, where there is one."""
    combined = scan.combine[0]
    known = any(unchanging(scan.combine, whole) for whole in (False, True))
    return _RUNNING[combined.operator] if known and isinstance(combined, Apply) else None


_RUNNING: Mapping[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "add": torch.cumsum,
    "mul": torch.cumprod,
    "maximum": lambda x, dim: torch.cummax(x, dim)[0],
    "minimum": lambda x, dim: torch.cummin(x, dim)[0],
}


def product_along(values: Named, axes: Sequence[Axis]) -> Named:
    """The product along the axes; along one that the values do not have, their power."""
    repeats = math.prod(a.extent for a in axes if a.name not in values.axes)
    result, left = values.values, list(values.axes)
    for name in [a.name for a in axes if a.name in values.axes]:
        result = result.prod(left.index(name))
        left.remove(name)
    return Named(tuple(left), result if repeats == 1 else result**repeats)


def overflowed(values: torch.Tensor, narrow: str) -> torch.Tensor:
    """Infinities where the values round to such in a narrower type, else the values, unrounded."""
    return torch.where(values.abs() >= overflow(narrow), values * math.inf, values)


def overflow(narrow: str) -> float:
    """The least number that rounds to infinity in a narrower type: half a unit beyond the largest finite one."""
    largest = torch.finfo(torch_dtype(narrow))
    return largest.max * (2 - largest.eps / 2) / (2 - largest.eps)


def extreme(values: Named, axes: Sequence[Axis], fold: Callable[..., torch.Tensor]) -> Named:
    """`fold`, torch.amax or torch.amin, along those of the axes that the values have."""
    reduced = {a.name for a in axes}
    dims = [d for d, a in enumerate(values.axes) if a in reduced]
    left = tuple(a for a in values.axes if a not in reduced)
    return Named(left, fold(values.values, dims)) if dims else values


def _expression(expression: Expression, stage: Stage, known: _Known) -> Named:
    match expression:
        case Literal(value):
            return literal(value, _device(known.tensors), known.constants)
        case Integer(value):
            return literal(value, _device(known.tensors), torch.int64)
        case Access() | Gather() | Position():
            exact = _leaf(expression, stage, known)
            return exact if exact.values.is_floating_point() else Named(exact.axes, exact.values.to(known.constants))
        case Apply("to_integer", (Access() | Gather() | Position() as leaf,)):
            exact = _leaf(leaf, stage, known)
            return Named(exact.axes, OPERATIONS["to_integer"](exact.values))
        case Apply("to_float", (argument,)):
            whole = _expression(argument, stage, known)
            return Named(whole.axes, whole.values.to(known.constants))
        case Apply(operator, (argument,)) if operator in ROUNDINGS and known.constants == torch.float64:
            exact = _expression(argument, stage, known)
            return Named(exact.axes, overflowed(exact.values, ROUNDINGS[operator]))
        case Apply(operator, arguments):
            given = [_expression(a, stage, known) for a in arguments]
            axes = union(given)
            return Named(axes, OPERATIONS[operator](*(g.aligned(axes) for g in given)))


def _leaf(expression: Access | Gather | Position, stage: Stage, known: _Known) -> Named:
    """What is read or counted, in the type that holds it exactly."""
    match expression:
        case Access(tensor):
            return read(expression, known.tensors[tensor], stage.extents)
        case Gather(tensor, index):
            at = [i if isinstance(i, Affine) else _expression(i, stage, known) for i in index]
            return look_up(known.tensors[tensor], at, stage.extents, known.outside[tensor])
        case Position(index):
            return count(index, stage.extents, _device(known.tensors), torch.int64)


def _device(tensors: Mapping[str, torch.Tensor]) -> torch.device:
    return next(iter(tensors.values())).device
