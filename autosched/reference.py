"""The reference: a workload evaluated by PyTorch straight from its expressions, independent of any lowering."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import torch

from autosched.free_memory import memory_for
from autosched.named_tensors import Named, read, sum_of_products, union
from search_spaces import Axis, InputError, Stage, Workload
from search_spaces import Tensor as TensorSpec
from search_spaces.dtypes import is_integer
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
    """Fresh data for every input, in order, of the declared shapes, element types and strides.

    Standard normal, rounded to the type; integers uniform and symmetric about 0, as large as they may be with no sum of
    their products beyond int32.

    Raises:
        OutOfMemoryError: they do not fit in memory.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    needed = sum(t.span * torch_dtype(t.dtype).itemsize for t in workload.inputs)
    largest = _largest_integer(workload)
    with memory_for(f"the inputs of {workload.label}", needed, generator.device):
        return [_drawn(t, generator, largest) for t in workload.inputs]


def empty(tensor: TensorSpec, device: str | torch.device) -> torch.Tensor:
    """Memory for a tensor of a workload, with its strides and element type; its elements are not set."""
    return torch.empty_strided(tensor.shape, tensor.effective_strides, dtype=torch_dtype(tensor.dtype), device=device)


def _drawn(tensor: TensorSpec, generator: torch.Generator, largest: int) -> torch.Tensor:
    # What lies between strided rows is drawn with them: a kernel that reads it computes something else.
    shape = tensor.shape if tensor.strides is None else (tensor.span,)
    if is_integer(tensor.dtype):
        drawn = torch.randint(
            -largest, largest + 1, shape, generator=generator, device=generator.device, dtype=torch_dtype(tensor.dtype)
        )
    else:
        drawn = torch.randn(shape, generator=generator, device=generator.device, dtype=torch.float32)
        drawn = drawn.to(torch_dtype(tensor.dtype))
    return drawn if tensor.strides is None else drawn.as_strided(tensor.shape, tensor.strides)


def _largest_integer(workload: Workload) -> int:
    """The largest int8 whose square can be summed by every reduction of the workload without leaving int32."""
    longest = max((math.prod(a.extent for a in s.reduction.axes) for s in workload.stages if s.reduction), default=1)
    return min(127, math.isqrt((2**31 - 1) // longest))


def evaluate(workload: Workload, inputs: Sequence[torch.Tensor], dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """The output computed in `dtype` throughout, on the device of the inputs and not rounded to the output's type.

    Raises:
        InputError: the number of inputs or a shape is not the workload's.
    """
    return _run(workload, [x.to(dtype) for x in inputs], dtype)


def as_written(workload: Workload, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """The output as PyTorch eager computes it stage by stage, in the inputs' own element types: a baseline.

    Inputs of 8 bits, which PyTorch has no arithmetic for, are computed with in float32.

    Raises:
        InputError: the number of inputs or a shape is not the workload's.
    """
    computable = [x.to(torch.float32) if x.dtype.itemsize == 1 else x for x in inputs]
    return _run(workload, computable, torch.float32).to(torch_dtype(workload.output.dtype))


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
