"""Scaled products of 8-bit floats from PyTorch, against float64."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import autosched
import best_spaces
from autosched import trace
from autosched.backends.triton.backend import TritonBackend
from autosched.checking import reference
from autosched.checking.random_inputs import random_inputs
from autosched.planning import Launch
from autosched.tracing import loaded
from autosched.tracing.callables.steps import Draft, Region
from autosched.tracing.translation.translate import WithoutKernelError
from narrow_tensors import assert_equal, by_groups, drawn, integers, of_one_kernel, scales
from needed import needs_gpu
from schedule_checks import HERE, faults
from search_spaces import target_named
from search_spaces.workloads.exponents import exponents_of
from untuned import untuned_kernels

_SCALED_MM = pytest.mark.skipif(
    not hasattr(F, "scaled_mm"), reason="PyTorch 2.9, which is supported, lacks F.scaled_mm"
)
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
TRITON, H100 = TritonBackend(), target_named("h100")
ROWS, COLUMNS, DEPTH = 128, 256, 256


def float8_operands(second: torch.dtype = E4M3) -> tuple[Tensor, Tensor]:
    return drawn(ROWS, DEPTH, dtype=E4M3), drawn(COLUMNS, DEPTH, dtype=second).T


@pytest.mark.parametrize("second", [E4M3, E5M2])
@pytest.mark.parametrize("fast", [False, True])
def test_scaled_products_of_rows_columns_and_tensors(second: torch.dtype, fast: bool) -> None:
    a, b = float8_operands(second)
    bias = drawn(COLUMNS, dtype=torch.bfloat16)
    for of_a, of_b in ((scales(), scales()), (scales(ROWS, 1), scales(1, COLUMNS))):

        def function(a: Tensor, b: Tensor, s: Tensor, t: Tensor, bias: Tensor) -> Tensor:
            return torch._scaled_mm(a, b, s, t, bias, out_dtype=torch.bfloat16, use_fast_accum=fast)

        expected = (a.double() * of_a.double()) @ (b.double() * of_b.double()) + bias.double()
        assert_equal(function, (a, b, of_a, of_b, bias), expected)
    precisions = {w.precision for w in trace(function, a, b, of_a, of_b, bias).launched}
    assert precisions == ({"fast"} if fast and second is E4M3 else {"ieee"})


@_SCALED_MM
def test_scaled_products_of_blocks() -> None:
    from torch.nn.functional import ScalingType

    a, b = float8_operands()
    line, square = ScalingType.BlockWise1x128, ScalingType.BlockWise128x128
    groups = DEPTH // 128

    def lines(rows: int) -> Tensor:
        return scales(groups, rows).T

    def squares(rows: int) -> Tensor:
        # PyTorch has their number along k a multiple of four.
        return scales(rows // 128, 4).T

    for of_a, of_b in ((line, line), (line, square), (square, line)):
        s = lines(ROWS) if of_a == line else squares(ROWS)
        t = lines(COLUMNS) if of_b == line else squares(COLUMNS)
        whole_s, whole_t = (
            by_groups(x if of == line else x[:groups].T.repeat_interleave(128, 0), 128)
            for x, of in ((s, of_a), (t, of_b))
        )

        def function(a: Tensor, b: Tensor, s: Tensor, t: Tensor, of_a: Any = of_a, of_b: Any = of_b) -> Tensor:
            return F.scaled_mm(a, b, s, of_a, t, of_b)

        expected = (a.double() * whole_s) @ (b.double().T * whole_t).T
        assert_equal(function, (a, b, s, t), expected)
        # Scales are multiplied before the sum: in float32, whatever the precision of other products.
        assert of_one_kernel(function, a, b, s, t).precision == "ieee"


def swizzled(exponents: Tensor) -> Tensor:
    """[rows, k / 32] in blocks of 128 by 4, filled up with NaN, in each of which four rows lie side by side."""
    rows, groups = exponents.shape
    filled = torch.full((-(-rows // 128) * 128, -(-groups // 4) * 4), 255, dtype=torch.uint8)
    filled[:rows, :groups] = exponents
    places = itertools.product(range(0, filled.shape[0], 128), range(0, filled.shape[1], 4), *map(range, (32, 4, 4)))
    return torch.stack([filled[row + 32 * j + i, k + c] for row, k, i, j, c in places]).view(torch.float8_e8m0fnu)


def by_exponents(rows: int, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """An operand with k last and its exponents, swizzled; the same in float64."""
    x, exponents = drawn(rows, k, dtype=E4M3), integers(0, 200, rows, k // 32, dtype=torch.uint8)
    return x, swizzled(exponents), x.double() * by_groups(exponents.view(torch.float8_e8m0fnu).double(), 32)


def by_shape(a: Tensor, b: Tensor, s: Tensor, t: Tensor) -> Tensor:
    return torch._scaled_mm(a, b, s, t, out_dtype=torch.bfloat16)


def by_recipe(a: Tensor, b: Tensor, s: Tensor, t: Tensor) -> Tensor:
    kind, swizzle = F.ScalingType.BlockWise1x32, F.SwizzleType.SWIZZLE_32_4_4
    return F.scaled_mm(a, b, s, kind, t, kind, swizzle, swizzle)


@pytest.mark.parametrize("function", [by_shape, pytest.param(by_recipe, marks=_SCALED_MM)])
@pytest.mark.parametrize("sizes", [(128, 256, 128), (40, 144, 96)])
def test_scaled_products_with_exponents(function: Callable[..., Tensor], sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    (a, s, whole_a), (b, t, whole_b) = by_exponents(m, k), by_exponents(n, k)
    assert_equal(function, (a, b.T, s, t), whole_a @ whole_b.T)


def test_exponents_are_read_where_they_are() -> None:
    (a, s, _), (b, t, _) = by_exponents(128, 128), by_exponents(128, 128)
    workload = of_one_kernel(by_shape, a, b.T, s, t)
    assert exponents_of(workload) == {x.name for x in workload.inputs if x.dtype == "uint8"}
    assert not faults(workload, samples=1)


def test_exponents_along_a_part_of_their_elements_are_left_to_pytorch() -> None:
    (a, s, _), (b, t, _) = by_exponents(128, 96), by_exponents(128, 96)
    with pytest.raises(WithoutKernelError, match="exponents of 32 elements each along k=80; expected a multiple of it"):
        trace(by_shape, a[:, :80].contiguous(), b[:, :80].contiguous().T, s, t)


def test_exponents_are_powers_of_two_to_every_operator() -> None:
    bytes_ = torch.arange(256, dtype=torch.uint8).reshape(64, 4)

    def dequantised(x: Tensor, s: Tensor) -> Tensor:
        return x.reshape(64, 4, 32) * s.to(torch.float32)[..., None]

    inputs = drawn(64, 128), bytes_.view(torch.float8_e8m0fnu)
    traced = trace(dequantised, *inputs).for_target(HERE)
    kernels = untuned_kernels(traced.workloads, HERE)
    kernel = loaded(traced, kernels)
    for given in (inputs, (inputs[0], inputs[1].T.contiguous().reshape(64, 4))):
        torch.testing.assert_close(kernel(*given), dequantised(*given), rtol=0, atol=0, equal_nan=True)
    # Their memory is read as bytes, without a call.
    assert not traced.left_to_pytorch
    assert "s_bytes, of s where they are" in str(traced)
    draft = Draft(torch.device("cpu"), 64)
    draft.add(traced, kernels, {leaf: Region(draft.add_slot()) for leaf in traced.leaves}, {})
    assert [type(step) for step in draft.steps] == [Launch]


def test_parts_of_exponents_are_read_at_any_place() -> None:
    """A kernel reads a copy of what does not begin where it reads memory."""

    def scaled(x: Tensor, s: Tensor) -> Tensor:
        return x * s.to(torch.float32)[3:67]

    x, s = drawn(64), integers(110, 140, 128, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    traced = trace(scaled, x, s).for_target(HERE)
    kernel = loaded(traced, untuned_kernels(traced.workloads, HERE))
    twice = integers(110, 140, 300, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    for given in (s, twice[1:129], twice[1:257:2]):
        torch.testing.assert_close(kernel(x, given), scaled(x, given), rtol=0, atol=0)


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "slice": lambda s: s[1:5:2],
    "of a view": lambda s: s.t()[1:].t(),
    "another shape": lambda s: s.view(3, 8),
    "spread": lambda s: s.unsqueeze(-1).expand(-1, -1, 3),
    "one row": lambda s: s[2],
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_exponents_move_nothing(name: str) -> None:
    def doubled(s: Tensor) -> Tensor:
        return VIEWS[name](s).float() * 2

    s = integers(110, 140, 6, 4, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    traced = trace(doubled, s).for_target(HERE)
    assert (len(traced.left_to_pytorch), len(traced.launched)) == (0, 1)
    kernel = loaded(traced, untuned_kernels(traced.workloads, HERE))
    torch.testing.assert_close(kernel(s), doubled(s), rtol=0, atol=0)


def test_bytes_as_exponents_are_powers() -> None:
    def doubled(s: Tensor) -> Tensor:
        return s.view(torch.float8_e8m0fnu).float() * 2

    s = integers(110, 140, 6, 4, dtype=torch.uint8)
    traced = trace(doubled, s).for_target(HERE)
    kernel = loaded(traced, untuned_kernels(traced.workloads, HERE))
    torch.testing.assert_close(kernel(s), doubled(s), rtol=0, atol=0)


def test_views_of_exponents_as_results_are_left_to_pytorch() -> None:
    def doubled(s: Tensor) -> tuple[Tensor, Tensor]:
        part = s.view(torch.float8_e8m0fnu)
        return part, part[1:3].float() * 2

    s = integers(110, 140, 6, 4, dtype=torch.uint8)
    with pytest.raises(WithoutKernelError, match="exponents, which no kernel stores"):
        trace(doubled, s)
    traced = trace(doubled, s, allow_fallback=True).for_target(HERE)
    assert len(traced.left_to_pytorch) == 1
    kernel = loaded(traced, untuned_kernels(traced.workloads, HERE))
    for got, wanted in zip(kernel(s), doubled(s), strict=True):
        torch.testing.assert_close(got.float(), wanted.float(), rtol=0, atol=0)


@_SCALED_MM
def test_scales_of_other_blocks_are_left_to_pytorch() -> None:
    kind, swizzle = F.ScalingType.BlockWise1x16, F.SwizzleType.SWIZZLE_32_4_4
    a, b = float8_operands()
    s, t = (torch.ones(rows * DEPTH // 16, dtype=torch.float32).to(E4M3) for rows in (ROWS, COLUMNS))
    with pytest.raises(WithoutKernelError, match=re.escape("scales by the recipe [2], swizzled")):
        trace(lambda a, b, s, t: F.scaled_mm(a, b, s, kind, t, kind, swizzle, swizzle), a, b, s, t)


# PyTorch has none of these for CPUs.
_UNCHECKED = pytest.mark.filterwarnings("ignore::autosched.tracing.callables.whole_check.UncheckedWarning")
ENDS = torch.tensor([4, 4, 20], dtype=torch.int32)
GROUPS = (slice(0, 4), slice(4, 4), slice(4, 20))


def in_groups(a: Tensor, b: Tensor, s: Tensor, t: Tensor, ends: Tensor | None = None) -> Tensor:
    return torch._scaled_grouped_mm(a, b, s, t, offs=ends)


def grouped_operands(*shape: int) -> tuple[Tensor, Tensor, Tensor]:
    """An operand with k last, a scale for each other position, and what it is in float64."""
    x, own = drawn(*shape, dtype=E4M3), scales(*shape[:-1])
    return x, own, x.double() * own.double()[..., None]


def assert_grouped(inputs: tuple[Tensor, ...], expected: Tensor) -> None:
    assert_equal(in_groups, inputs, expected)
    traced = trace(in_groups, *inputs).for_target(HERE)
    got = loaded(traced, untuned_kernels(traced.workloads, HERE))(*inputs).double()
    torch.testing.assert_close(got, expected, rtol=2**-7, atol=1e-5 * float(expected.abs().max()))


@_UNCHECKED
def test_scaled_grouped_products_of_rows_and_of_columns_by_segment() -> None:
    """The last rows, and columns, are of no segment: 0."""
    a, s, whole_a = grouped_operands(24, 32)
    b, t, whole_b = grouped_operands(3, 16, 32)
    expected = torch.zeros(24, 16, dtype=torch.float64)
    for g, cut in enumerate(GROUPS):
        expected[cut] = whole_a[cut] @ whole_b[g].T
    assert_grouped((a, b.mT, s, t, ENDS), expected)
    assert_grouped((b, a.T, t, s, ENDS), expected.T)


@_UNCHECKED
def test_scaled_grouped_products_of_k_by_segment_have_scales_of_each() -> None:
    a, b = drawn(16, 32, dtype=E4M3), drawn(48, 32, dtype=E4M3)
    s, t = scales(3, 16), scales(3, 48)
    parts = [(a[:, cut].double() @ b[:, cut].double().T) for cut in GROUPS]
    expected = torch.stack(parts) * s.double()[:, :, None] * t.double()[:, None]
    assert_grouped((a, b.T, s.flatten(), t.flatten(), ENDS), expected)


@pytest.mark.parametrize("cut", ["rows", "columns", "k"])
def test_scaled_grouped_products_are_one_kernel_on_a_gpu(triton_interpreter: Any, cut: str) -> None:
    (a, s, _), (b, t, _) = grouped_operands(48, 32), grouped_operands(3, 16, 32)
    inputs = {
        "rows": (a, b.mT, s, t, ENDS),
        "columns": (b, a.T, t, s, ENDS),
        "k": (a, a.T, scales(3 * 48), scales(3 * 48), ENDS),
    }[cut]
    (cut_once,) = [c for c in trace(in_groups, *inputs).for_target(H100).cuts if len(c.launched) == 1]
    (whole,) = cut_once.launched
    # Triton's interpreter has no bfloat16.
    workload = replace(whole, stages=tuple(replace(stage, dtype="float32") for stage in whole.stages))
    program = best_spaces.build(workload, H100).sample(np.random.default_rng(0)).program
    given = random_inputs(workload, seed=0)
    read = [x.float() if x.dtype.is_floating_point else x for x in given]
    (got,) = triton_interpreter.computed(TRITON.render(program, "", H100), workload, program, read)
    (expected,) = reference.evaluate(workload, given)
    torch.testing.assert_close(
        torch.as_tensor(got).double(), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max())
    )


def test_scaled_batches_are_grouped_products_without_ends() -> None:
    (a, s, whole_a), (b, t, whole_b) = grouped_operands(3, 16, 32), grouped_operands(3, 48, 32)
    assert_equal(in_groups, (a, b.mT, s, t), whole_a @ whole_b.mT)


def test_exponents_of_grouped_products_are_left_to_pytorch() -> None:
    a, b = drawn(16, 128, dtype=E4M3), drawn(3, 128, 128, dtype=E4M3)
    s, t = (torch.full(shape, 127, dtype=torch.uint8).view(torch.float8_e8m0fnu) for shape in ((128, 4), (3, 512)))
    with pytest.raises(WithoutKernelError, match="expected one for each row and column"):
        trace(in_groups, a, b.mT, s, t, ENDS)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("cut", ["rows", "columns", "k"])
def test_scaled_grouped_products_are_those_of_pytorch_on_a_gpu(cut: str, tmp_path: Path) -> None:
    """Without rows of no segment, which PyTorch leaves as they were."""
    (a, s, _), (b, t, _) = grouped_operands(96, 64), grouped_operands(3, 32, 64)
    of_each = scales(3 * 96)
    (c, _, _) = grouped_operands(96, 96)
    ends = torch.tensor([16, 16, 96], dtype=torch.int32)
    given = {"rows": (a, b.mT, s, t, ends), "columns": (b, a.T, t, s, ends), "k": (c, c.T, of_each, of_each, ends)}[cut]
    inputs = [x.cuda() for x in given]
    kernel = autosched.tune(trace(in_groups, *inputs), trials=8, log=tmp_path / "log.jsonl").kernel
    wanted = in_groups(*inputs).double()
    torch.testing.assert_close(kernel(*inputs).double(), wanted, rtol=2**-6, atol=1e-3 * float(wanted.abs().max()))
