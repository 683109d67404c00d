"""Convolutions as PyTorch has them, of all kinds, each with arguments; and kernels of these on a CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from autosched import TracedFunction, trace
from autosched.machine.devices import cpu_target
from autosched.tracing import loaded
from pairwise import pairwise
from untuned import untuned_kernels

R = functools.partial(torch.randn, generator=torch.Generator().manual_seed(0))
ORDINARY = (F.conv1d, F.conv2d, F.conv3d)
TRANSPOSED = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
# Relative to sums of a hundred products of a few units: float32 in any order; of the others a rounding or two.
TOLERANCES = {torch.float32: 1e-5, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}

KINDS: Mapping[str, tuple[Any, ...]] = {
    "kind": ("ordinary", "transposed"),
    "rank": (1, 2, 3),
    "size": (1, 6, 7),
    "taps": (1, 2, 3, 5),
    "stride": (1, 2, 3),
    "padding": (0, 1, 2, "same", "valid"),
    "dilation": (1, 2),
    "groups": (1, 2, "each"),
    "layout": ("first", "last", "gaps"),
    "bias": (False, True),
    "dtype": (torch.float32, torch.float16, torch.bfloat16),
}


def is_defined(kind: Mapping[str, Any]) -> bool:
    """True where PyTorch computes it, and with no kernels for 27 residues of a stride."""
    reach, padding = (kind["taps"] - 1) * kind["dilation"] + 1, kind["padding"]
    if (kind["kind"], kind["rank"], kind["stride"]) == ("transposed", 3, 3):
        return False
    if isinstance(padding, str) and (kind["kind"] == "transposed" or (padding == "same" and kind["stride"] > 1)):
        return False
    before = {"same": reach, "valid": 0}.get(padding, padding)
    if kind["kind"] == "transposed":
        return bool((kind["size"] - 1) * kind["stride"] + reach > 2 * before)
    return bool(kind["size"] + 2 * before >= reach)


COMBINATIONS = pairwise(KINDS, is_defined)


def name_of(kind: Mapping[str, Any]) -> str:
    return " ".join(str(v).removeprefix("torch.") if n == "dtype" else f"{n}={v}" for n, v in kind.items())


def made(kind: Mapping[str, Any]) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    """The convolution of that kind, and its arguments; its last dimension has other numbers than the first."""
    rank, transposed = kind["rank"], kind["kind"] == "transposed"
    groups, inner, filters = {1: (1, 3, 4), 2: (2, 2, 3), "each": (5, 1, 2)}[kind["groups"]]
    size = [kind["size"]] * (rank - 1) + [kind["size"] + 2]
    taps = [kind["taps"]] * (rank - 1) + [max(kind["taps"] - 1, 1)]
    channels = (groups * inner, filters) if transposed else (groups * filters, inner)
    x = laid_out(R(2, groups * inner, *size).to(kind["dtype"]), kind["layout"])
    weight = laid_out(R(*channels, *taps).to(kind["dtype"]), "first" if kind["layout"] == "gaps" else kind["layout"])
    options: dict[str, Any] = {n: kind[n] for n in ("stride", "padding", "dilation")} | {"groups": groups}
    if transposed:
        options["output_padding"] = [0] * (rank - 1) + [max(kind["stride"], kind["dilation"]) - 1]
    function = (TRANSPOSED if transposed else ORDINARY)[rank - 1]
    more = (R(groups * filters).to(kind["dtype"]),) if kind["bias"] else ()
    return lambda x, w, *b: function(x, w, *(b or (None,)), **options), (x, weight, *more)


def laid_out(x: Tensor, layout: str) -> Tensor:
    """The tensor with its channels first or last in memory, or with gaps between its images."""
    if layout == "last":
        return x.movedim(1, -1).contiguous().movedim(-1, 1)
    return torch.cat((x, x), 1)[:, : x.shape[1]] if layout == "gaps" else x


def strides_of(x: Tensor) -> tuple[int, ...]:
    """The strides, of which those along dimensions of size 1 say nothing."""
    return tuple(0 if size == 1 else s for size, s in zip(x.shape, x.stride(), strict=True))


def checked(function: Callable[..., Any], *given: Tensor, tolerance: float | None = None) -> TracedFunction:
    """The traced function; its kernels give eager's element types and strides, and the numbers of float64.

    Raises:
        AssertionError: they do not, or something is left to PyTorch.
    """
    traced = trace(function, *given)
    check(traced, function, *given, tolerance=tolerance)
    return traced


def check(cut: TracedFunction, function: Callable[..., Any], *given: Tensor, tolerance: float | None = None) -> None:
    """Raise AssertionError unless the kernels of a cut do what `checked` says."""
    assert not [left for left in cut.left_to_pytorch if "it reads nothing from memory" not in left]
    found = loaded(cut, untuned_kernels(cut.workloads, cpu_target()))(*given)
    eager, exact = function(*given), function(*(x.double() if x.is_floating_point() else x for x in given))
    for got, like, want in zip(*map(_several, (found, eager, exact)), strict=True):
        assert (got.dtype, got.shape) == (like.dtype, like.shape)
        assert strides_of(got) == strides_of(like)
        allowed = TOLERANCES[given[0].dtype] if tolerance is None else tolerance
        torch.testing.assert_close(got.double(), want.double(), rtol=allowed, atol=allowed, equal_nan=True)


def _several(results: Any) -> tuple[Tensor, ...]:
    return (results,) if isinstance(results, Tensor) else tuple(results)
