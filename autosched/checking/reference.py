"""The reference: a workload evaluated by PyTorch directly from its expressions, independent of any lowering."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from autosched.checking.named_tensors import Named, count, look_up, read, segment_of, sum_of_products, union
from autosched.checking.operations import OPERATIONS, extreme, overflowed, product_along
from autosched.checking.pieces.pieces import joined, pieces_of
from autosched.checking.pieces.runs import runs_of
from autosched.checking.scanned import Values, combined_values, named, running, scanned
from autosched.machine.element_types import torch_dtype
from search_spaces import InputError, Scan, Stage, Workload
from search_spaces import Tensor as TensorSpec
from search_spaces.workloads.dtypes import is_float
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import (
    Access,
    Apply,
    Expression,
    Gather,
    Integer,
    Literal,
    Position,
    Segment,
)
from search_spaces.workloads.expressions.kinds import is_integral
from search_spaces.workloads.expressions.operators import ROUNDINGS
from search_spaces.workloads.scans import LEFT, RIGHT


def evaluate(
    workload: Workload, inputs: Sequence[torch.Tensor], dtype: torch.dtype = torch.float64
) -> tuple[torch.Tensor, ...]:
    """The outputs computed in `dtype` throughout, on the device of the inputs and not rounded to their types.

    Integers are computed in int64, and an output is of that type where it is an expression of integers. In float64 no
    operator rounds: `round_float16` yields its argument, or an infinity where that overflows.

    Raises:
        InputError: the number of inputs or a shape is not the workload's.
    """
    pieces = pieces_of(workload, inputs, evaluate)
    if pieces is not None:
        return joined([evaluate(part, read, dtype) for part, read in pieces.parts], pieces)
    return _run(workload, inputs, dtype, exactly=True)


def as_written(workload: Workload, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The outputs as PyTorch eager computes them stage by stage, in the inputs' own element types: a baseline.

    Inputs of 8 bits, for which PyTorch has no arithmetic, or none that we want, are computed with in float32.

    Raises:
        InputError: the number of inputs or a shape is not the workload's.
    """
    computable = [x.to(torch.float32) if x.dtype.itemsize == 1 else x for x in inputs]
    made = _run(workload, computable, torch.float32, exactly=False)
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
    """The factors of a sum of products; an integer expression, which no dot multiplies, is one factor."""
    return [summed] if is_integral(summed) else factors(summed)


def literal(value: float | int, device: torch.device, dtype: torch.dtype = torch.float64) -> Named:
    """A constant. It has no dimension, so that it never widens the element type of its operands.

    Cached: to send a number to a GPU takes longer than many a kernel, and a baseline is not to be timed doing that.
    """
    # 0 and -0 are equal, and not the same.
    return _literal(value, math.copysign(1.0, value), device, dtype)


@lru_cache(maxsize=1024)
def _literal(value: float | int, sign: float, device: torch.device, dtype: torch.dtype) -> Named:
    return Named((), torch.tensor(value, dtype=dtype, device=device))


def _run(
    workload: Workload, inputs: Sequence[torch.Tensor], constants: torch.dtype, exactly: bool
) -> tuple[torch.Tensor, ...]:
    check_shapes(workload, inputs)
    tensors = {t.name: x for t, x in zip(workload.inputs, inputs, strict=True)}
    known = _Known(tensors, constants, {t.name: outside(t) for t in workload.inputs}, constants if exactly else None)
    for stage in workload.stages:
        if stage.scan is None:
            tensors[stage.name] = _stage(stage, known)
        elif stage.name not in tensors:
            tensors |= _scanned(members(workload, stage.scan), known)
    return tuple(tensors[name] for name in workload.output_names)


@dataclass(frozen=True)
class _Known:
    """The tensors computed so far, the type of constants, and the value outside of every input.

    `read_as`: the type of what is read, None for that of the tensor.
    """

    tensors: Mapping[str, torch.Tensor]
    constants: torch.dtype
    outside: Mapping[str, float]
    read_as: torch.dtype | None


def outside(tensor: TensorSpec) -> float:
    """The value of a look-up whose index is out of range."""
    return math.nan if is_float(tensor.dtype) else 0.0


def _stage(stage: Stage, known: _Known) -> torch.Tensor:
    # A baseline is one call for each stage, and does not look at data.
    found = runs_of(stage, lambda e: _expression(e, stage, known)) if known.read_as is not None else None
    if found is None:
        return _folded(stage, known)
    return found.joined([_folded(r.stage, replace(known, tensors={**known.tensors, **r.tensors})) for r in found.runs])


def _folded(stage: Stage, known: _Known) -> torch.Tensor:
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
    """The stages that are scanned together, in the order of their combination."""
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

    def combine(left: Values, right: Values, step: int) -> Values:
        given = {named(side, n): x for side, some in ((LEFT, left), (RIGHT, right)) for n, (x,) in enumerate(some)}
        stage, combined = combined_values(scan, left[0][0].shape)
        own = [a.name for a in stage.axes]
        whole = _Known(given, known.constants, {}, known.read_as)
        return [(_expression(e, stage, whole).aligned(own).expand(stage.shape),) for e in combined]

    made = scanned([(x,) for x in elements], dim, scan.reverse, combine)
    return {s.name: x for s, (x,) in zip(group, made, strict=True)}


def _expression(expression: Expression, stage: Stage, known: _Known) -> Named:
    match expression:
        case Literal(value):
            return literal(value, _device(known.tensors), known.constants)
        case Integer(value):
            return literal(value, _device(known.tensors), torch.int64)
        case Segment(tensor, position):
            at = (
                _leaf(Position(position), stage, known)
                if isinstance(position, Affine)
                else _expression(position, stage, known)
            )
            return segment_of(known.tensors[tensor], at)
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
    """The value read or counted, in the type that represents it exactly."""
    match expression:
        case Access(tensor):
            return read(expression, known.tensors[tensor], stage.extents, known.read_as)
        case Gather(tensor, index):
            at = [i if isinstance(i, Affine) else _expression(i, stage, known) for i in index]
            return look_up(known.tensors[tensor], at, stage.extents, known.outside.get(tensor, math.nan), known.read_as)
        case Position(index):
            return count(index, stage.extents, _device(known.tensors), torch.int64)


def _device(tensors: Mapping[str, torch.Tensor]) -> torch.device:
    return next(iter(tensors.values())).device
