"""The reference: a workload evaluated by PyTorch straight from its expressions, independent of any lowering."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import torch

from autosched.free_memory import memory_for
from autosched.named_tensors import Named, read, sum_of_products, union
from search_spaces import Axis, InputError, Stage, Workload
from search_spaces.expression import Access, Apply, Expression, Literal

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
    "erf": torch.erf,
}


def torch_dtype(name: str) -> torch.dtype:
    """The PyTorch element type of the same name as one of `search_spaces.dtypes`."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def random_inputs(workload: Workload, seed: int, device: str | torch.device = "cpu") -> list[torch.Tensor]:
    """Fresh standard normal data for every input, in order, of the declared shapes and element types.

    Raises:
        OutOfMemoryError: they do not fit in memory.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    needed = sum(math.prod(t.shape) * torch_dtype(t.dtype).itemsize for t in workload.inputs)
    with memory_for(f"the inputs of {workload.label}", needed, generator.device):
        return [
            torch.randn(t.shape, generator=generator, device=device, dtype=torch.float32).to(torch_dtype(t.dtype))
            for t in workload.inputs
        ]


def evaluate(workload: Workload, inputs: Sequence[torch.Tensor], dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """The output computed in `dtype` throughout, on the device of the inputs and not rounded to the output's type.

    Raises:
        InputError: the number of inputs or a shape is not the workload's.
    """
    return _run(workload, [x.to(dtype) for x in inputs], dtype)


def as_written(workload: Workload, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """The output as PyTorch eager computes it stage by stage, in the inputs' own element types: a baseline.

    Raises:
        InputError: the number of inputs or a shape is not the workload's.
    """
    return _run(workload, inputs, torch.float32).to(torch_dtype(workload.output.dtype))


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


@lru_cache(maxsize=1024)
def literal(value: float, device: torch.device, dtype: torch.dtype = torch.float64) -> Named:
    """A constant. It has no dimension, so that it never widens the element type of what it meets.

    Remembered: to send a number to a GPU takes longer than many a kernel, and a baseline is not to be timed doing that.
    """
    return Named((), torch.tensor(value, dtype=dtype, device=device))


def _run(workload: Workload, inputs: Sequence[torch.Tensor], constants: torch.dtype) -> torch.Tensor:
    check_shapes(workload, inputs)
    tensors = {t.name: x for t, x in zip(workload.inputs, inputs, strict=True)}
    for stage in workload.stages:
        tensors[stage.name] = _stage(stage, tensors, constants)
    return tensors[workload.output.name]


def _stage(stage: Stage, tensors: Mapping[str, torch.Tensor], constants: torch.dtype) -> torch.Tensor:
    names = [a.name for a in stage.axes]
    if stage.reduction is None:
        result = _expression(stage.expression, stage, tensors, constants)
    elif stage.reduction.operator == "sum":
        terms = [_expression(f, stage, tensors, constants) for f in factors(stage.expression)]
        result = sum_of_products(terms, names, {a.name: a.extent for a in stage.reduction.axes})
    else:
        fold = torch.amax if stage.reduction.operator == "max" else torch.amin
        result = extreme(_expression(stage.expression, stage, tensors, constants), stage.reduction.axes, fold)
    return result.aligned(names).expand(stage.shape)


def extreme(values: Named, axes: Sequence[Axis], fold: Callable[..., torch.Tensor]) -> Named:
    """`fold`, torch.amax or torch.amin, along those of the axes that the values have."""
    reduced = {a.name for a in axes}
    dims = [d for d, a in enumerate(values.axes) if a in reduced]
    left = tuple(a for a in values.axes if a not in reduced)
    return Named(left, fold(values.values, dims)) if dims else values


def _expression(
    expression: Expression, stage: Stage, tensors: Mapping[str, torch.Tensor], constants: torch.dtype
) -> Named:
    match expression:
        case Literal(value):
            return literal(value, next(iter(tensors.values())).device, constants)
        case Access(tensor):
            return read(expression, tensors[tensor], stage.extents)
        case Apply(operator, arguments):
            given = [_expression(a, stage, tensors, constants) for a in arguments]
            axes = union(given)
            return Named(axes, OPERATIONS[operator](*(g.aligned(axes) for g in given)))
