"""Baselines of the named operators, by PyTorch and the vendor's library.

`eager` is the form that a user writes; `library` writes to a preallocated output with as few passes as the library
allows, and is the harder one to beat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from autosched.baselines.chains import CONVERTING, chained, chained_into
from autosched.baselines.library_convolutions import LibraryConvolution
from autosched.baselines.library_products import product
from autosched.baselines.narrow_products import dequantised, is_narrow, plain_arguments
from autosched.baselines.segments import (
    block_sparse_product,
    grouped_product,
    has_grouped_mm,
    segment_sum,
    varlen_attention,
)
from autosched.machine.element_types import torch_dtype
from autosched.machine.library_precision import LibraryPrecision
from search_spaces import Target, Workload, ops
from search_spaces.workloads.dtypes import FLOAT8, dtype
from search_spaces.workloads.workload import Scalar

# Takes the inputs in calling order, returns the output.
Eager = Callable[..., Tensor]
# Takes the inputs and the output that it overwrites.
IntoOutput = Callable[[Sequence[Tensor], Tensor], object]
# Takes the inputs, returns calls by name.
Ways = Callable[[Sequence[Tensor]], Mapping[str, Callable[[], Tensor]]]


@dataclass(frozen=True)
class Baseline:
    """One operator by other means. `called` names the functions used, for the table.

    `ways`, for operators that the library has several of: calls on the inputs, which allocate their results, by name.
    The fastest is the library's. `converting`: the same from and to the memory formats that are given.
    """

    called: str
    eager: Eager
    library: IntoOutput | None = None
    ways: Ways | None = None
    converting: Ways | None = None


def baseline(workload: Workload) -> Baseline | None:
    """The library's version of a workload, or None when it is not one of the named operators."""
    named = _constructed(workload)
    if named is None or named != workload:
        return None
    # All arguments, with the defaults.
    arguments = dict(named.arguments)
    match workload.name:
        case "matmul" if is_narrow(arguments):
            return _dequantising(workload, arguments)
        case "matmul":
            return _matmul(workload, arguments)
        case "conv":
            used = LibraryConvolution.of(named, _links(arguments.get("epilogue")), _number(arguments, "scale"))
            return Baseline(used.called, used.eager, ways=used.ways, converting=used.converting_ways)
        case "grouped_matmul":
            called = "torch._grouped_mm" if has_grouped_mm(arguments) else "a product for each group"
            return Baseline(called, grouped_product(arguments))
        case "segment_sum":
            return Baseline("torch.segment_reduce", segment_sum)
        case "block_sparse_matmul":
            return Baseline("a product for each block", block_sparse_product)
        case "varlen_attention":
            return Baseline("F.scaled_dot_product_attention, masked", varlen_attention(bool(arguments["causal"])))
        case "softmax":
            return Baseline(
                "torch.softmax", lambda x: F.softmax(x, -1), lambda inputs, out: torch.softmax(inputs[0], -1, out=out)
            )
        case "layernorm":
            return _layernorm(_number(arguments, "eps"))
        case "rmsnorm":
            eps = _number(arguments, "eps")
            return Baseline("F.rms_norm", lambda x, weight: F.rms_norm(x, x.shape[-1:], weight, eps))
        case "row_sum":
            return Baseline("torch.sum", lambda x: x.sum(-1), lambda inputs, out: torch.sum(inputs[0], -1, out=out))
        case "gelu_scale":
            return _chain(("gelu", "scale"), _number(arguments, "scale"))
        case "pointwise":
            return _chain(_links(arguments["chain"]), _number(arguments, "scale"))
        case _:
            return None


def library_call(workload: Workload, inputs: Sequence[Tensor], outs: Sequence[Tensor]) -> Callable[[], object] | None:
    """A library call that overwrites `outs`, or PyTorch's form that allocates; None if there is neither."""
    known = baseline(workload)
    if known is None:
        return None
    # Named operators have one output.
    (out,) = outs
    eager, library = known.eager, known.library
    return (lambda: eager(*inputs)) if library is None else (lambda: library(inputs, out))


@contextmanager
def library_settings(precision: str | LibraryPrecision, target: Target) -> Iterator[None]:
    """PyTorch's threads as the kernels of the target have them, and its precision: that of a workload, or those of
    products and of convolutions.
    """
    threads = torch.get_num_threads()
    if target.kind == "cpu":
        torch.set_num_threads(target.threads)
    try:
        with (LibraryPrecision.of(precision) if isinstance(precision, str) else precision).applied():
            yield
    finally:
        torch.set_num_threads(threads)


def library_name(workload: Workload, device: torch.device) -> str:
    """The library that PyTorch calls for the workload on that device."""
    if workload.name == "conv":
        return "cuDNN" if device.type == "cuda" else "oneDNN"
    if workload.name != "matmul":
        return "PyTorch"
    if device.type == "cuda":
        # torch._scaled_mm and torch._int_mm; only products of wider types are left to cuBLAS.
        return "cuBLASLt" if any(dtype(d).bytes == 1 for d in workload.contracted) else "cuBLAS"
    mkl = torch.backends.mkl.is_available()
    return "MKL" if mkl and workload.outputs[0].dtype in ("float32", "float64") else "oneDNN"


def _constructed(workload: Workload) -> Workload | None:
    """The named operator with the workload's arguments; None where there is none, or it does not take these."""
    constructor = ops.CONSTRUCTORS.get(workload.name)
    if constructor is None:
        return None
    try:
        return constructor(**dict(workload.arguments))
    except (TypeError, ValueError, AttributeError):
        # A custom workload that borrows the name: arguments are missing, unknown or of another type.
        return None


def _number(arguments: dict[str, Scalar], name: str) -> float:
    return float(arguments.get(name) or 0.0)


def _links(chain: Scalar) -> tuple[str, ...]:
    return tuple(filter(None, str(chain or "").split("_")))


def _matmul(workload: Workload, arguments: dict[str, Scalar]) -> Baseline:
    layout = str(arguments["layout"])
    links, scale = _links(arguments["epilogue"]), _number(arguments, "scale")
    used = product(workload, links)
    made, rest = torch_dtype(workload.outputs[0].dtype), links[used.absorbed :]
    # The library's result before the links that it does not absorb, where its type is not the output's.
    products: list[Tensor] = []

    def operands(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return (a.mT if layout[0] == "t" else a), (b.mT if layout[1] == "t" else b)

    def eager(a: Tensor, b: Tensor, *extra: Tensor) -> Tensor:
        multiplied = used.multiply(*operands(a, b), extra[: used.absorbed], None)
        if rest and not multiplied.is_floating_point():
            multiplied = multiplied.to(torch.float32)
        return chained(multiplied, rest, iter(extra[used.absorbed :]), scale).to(made)

    def library(inputs: Sequence[Tensor], out: Tensor) -> None:
        a, b = operands(inputs[0], inputs[1])
        extra = inputs[2:]
        if used.made != made and not products:
            products.append(torch.empty_like(out, dtype=used.made))
        multiplied = out if used.made == made else products[0]
        used.multiply(a, b, extra[: used.absorbed], multiplied)
        # PyTorch has no arithmetic on 8-bit floats: links cannot work in place on such an output.
        working = multiplied if workload.outputs[0].dtype in FLOAT8 else out
        if working is not multiplied and rest[:1] not in CONVERTING:
            multiplied = working.copy_(multiplied)
        chained_into(multiplied, working, rest, iter(extra[used.absorbed :]), scale)
        if working is not out:
            out.copy_(working)

    return Baseline(used.called, eager, library if used.writes else None)


def _dequantising(workload: Workload, arguments: dict[str, Scalar]) -> Baseline:
    """The product of operands that are dequantised first."""
    (out,) = workload.outputs
    constructor: Callable[..., Workload] = ops.matmul
    plain = constructor(**plain_arguments(arguments, out.dtype))
    known = _matmul(plain, dict(plain.arguments))

    def eager(*inputs: Tensor) -> Tensor:
        return known.eager(*dequantised(arguments, inputs)).reshape(out.shape)

    return Baseline(f"{known.called} of dequantised operands", eager)


def _layernorm(eps: float) -> Baseline:
    def eager(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], weight, bias, eps)

    moments: list[Tensor] = []

    def library(inputs: Sequence[Tensor], out: Tensor) -> None:
        x, weight, bias = inputs
        if not moments:
            # ATen also writes mean and 1/deviation, in an element type of its own choice.
            moments.extend(torch.native_layer_norm(x, x.shape[-1:], weight, bias, eps)[1:])
        mean, deviation = moments
        torch.ops.aten.native_layer_norm.out(
            x, list(x.shape[-1:]), weight, bias, eps, out0=out, out1=mean, out2=deviation
        )

    return Baseline("F.layer_norm", eager, library)


def _chain(links: tuple[str, ...], scale: float) -> Baseline:
    def eager(x: Tensor, *extra: Tensor) -> Tensor:
        return chained(x, links, iter(extra), scale).to(x.dtype)

    def library(inputs: Sequence[Tensor], out: Tensor) -> None:
        chained_into(inputs[0], out, links, iter(inputs[1:]), scale)

    return Baseline("one call per link", eager, library)
