"""Products of narrow operands from PyTorch: its operators, and dequantisation written out, against float64."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import autosched
from autosched import trace
from autosched.tracing.operators import int4_layout, narrow_products
from autosched.tracing.operators.int4_layout import Int4Layout
from autosched.tracing.translation.translate import WithoutKernelError
from schedule_checks import faults
from search_spaces import InputError, Workload
from search_spaces.workloads.expressions.walking import accesses
from traced_reference import computed

N, K, GROUP = 64, 64, 32
_GENERATOR = torch.Generator().manual_seed(0)


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=_GENERATOR).to(dtype)


def integers(low: int, end: int, *shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randint(low, end, shape, generator=_GENERATOR).to(dtype)


def scales(*shape: int) -> Tensor:
    """From 1e-4 to 1e4."""
    return 10.0 ** (8 * torch.rand(shape, generator=_GENERATOR) - 4)


def of_one_kernel(function: Callable[..., Tensor], *inputs: Tensor) -> Workload:
    """The workload of the cut into one kernel."""
    (cut,) = [c for c in trace(function, *inputs).cuts if len(c.launched) == 1]
    return cut.launched[0]


def assert_equal(function: Callable[..., Tensor], inputs: tuple[Tensor, ...], expected: Tensor) -> None:
    """What tracing made of the function is the expected result, all but for float64's rounding."""
    (got,) = computed(trace(function, *inputs), inputs)
    wanted = expected.double()
    torch.testing.assert_close(got.double(), wanted, rtol=0, atol=1e-13 * float(wanted.abs().max()))


def by_groups(x: Tensor, each: int) -> Tensor:
    return x.double().repeat_interleave(each, -1)


# PyTorch's operators


def test_int8_products_are_sums_in_int32() -> None:
    a, b = (integers(-128, 128, 32, 32, dtype=torch.int8) for _ in range(2))
    assert_equal(torch._int_mm, (a, b), a.long() @ b.long())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_int8_weights_have_a_scale_each_row(dtype: torch.dtype) -> None:
    x, q, s = drawn(3, K, dtype=dtype), integers(-128, 128, N, K, dtype=torch.int8), scales(N).to(dtype)
    assert_equal(torch._weight_int8pack_mm, (x, q, s), x.double() @ q.double().T * s.double())


def int4_operands() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, packed weights, scales and zeros as PyTorch has them; the weights' numbers."""
    numbers = integers(0, 16, N, K, dtype=torch.int32)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(numbers, 1)
    return drawn(3, K), packed, torch.stack((scales(K // GROUP, N), drawn(K // GROUP, N)), 2), numbers


def int4_product(x: Tensor, packed: Tensor, scales_and_zeros: Tensor) -> Tensor:
    made: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(x, packed, GROUP, scales_and_zeros)
    return made


def test_int4_weights_are_read_as_pytorch_packs_them_here() -> None:
    x, packed, both, numbers = int4_operands()
    weights = (numbers.double() - 8) * by_groups(both[..., 0].T, GROUP) + by_groups(both[..., 1].T, GROUP)
    expected = x.double() @ weights.T
    assert_equal(int4_product, (x, packed, both), expected)
    eager = int4_product(x, packed, both).double()
    torch.testing.assert_close(eager, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize(
    "layout", [Int4Layout(64, halves=True), Int4Layout(32, halves=True), Int4Layout(32, halves=False)]
)
def test_int4_weights_are_read_in_every_layout(layout: Int4Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrow_products, "int4_layout", lambda: layout)
    x, packed, both, _ = int4_operands()
    weights = (layout.rows(packed).double() - 8) * by_groups(both[..., 0].T, GROUP) + by_groups(both[..., 1].T, GROUP)
    assert_equal(int4_product, (x, packed, both), x.double() @ weights.T)


def test_the_layout_of_int4_depends_on_the_vectors_of_the_cpu() -> None:
    """PyTorch's narrowest kernels are asked for in a process of its own, which imports nothing else."""
    program = f"import runpy; print(runpy.run_path({int4_layout.__file__!r})['int4_layout']())"
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": "default"}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == str(Int4Layout(32, halves=False)), ran.stderr


def test_int4_weights_of_rows_that_fill_no_block_are_left_to_pytorch() -> None:
    layout = int4_layout.int4_layout()
    assert layout is not None
    rows = layout.block + 16
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(integers(0, 16, rows, K, dtype=torch.int32), 1)
    with pytest.raises(WithoutKernelError, match=f"{rows} rows of int4 as PyTorch packs them here"):
        trace(int4_product, drawn(3, K), packed, torch.ones(K // GROUP, rows, 2))


# Scaled 8-bit floats

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
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


@pytest.mark.skipif(not hasattr(F, "scaled_mm"), reason="not in every PyTorch that is supported")
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


@pytest.mark.skipif(not hasattr(F, "scaled_mm"), reason="not in every PyTorch that is supported")
def test_scales_of_other_blocks_are_left_to_pytorch() -> None:
    from torch.nn.functional import ScalingType

    a, b = float8_operands()
    # Exponents, of 32 elements each, in an order of their own.
    exponents = [
        torch.zeros(rows * DEPTH // 32, dtype=torch.uint8).view(torch.float8_e8m0fnu) for rows in (ROWS, COLUMNS)
    ]
    from torch.nn.functional import SwizzleType

    with pytest.raises(WithoutKernelError, match="float8_e8m0fnu"):
        trace(
            lambda a, b, s, t: F.scaled_mm(
                *(a, b, s, ScalingType.BlockWise1x32, t, ScalingType.BlockWise1x32),
                *(SwizzleType.SWIZZLE_32_4_4, SwizzleType.SWIZZLE_32_4_4),
            ),
            *(a, b, *exponents),
        )


# Dequantisation written out


def packed_and_scaled() -> tuple[Tensor, Tensor, Tensor]:
    """Numbers of 4 bits, two in a byte along k, scales and zero points of groups of k."""
    return (
        integers(0, 256, K // 2, N, dtype=torch.uint8),
        scales(K // GROUP, N).bfloat16(),
        integers(0, 16, K // GROUP, N, dtype=torch.bfloat16),
    )


def unpacked(p: Tensor) -> Tensor:
    return torch.stack((p & 15, p >> 4), 1).reshape(K, N)


def by_views(x: Tensor, p: Tensor, s: Tensor, z: Tensor) -> Tensor:
    w = (unpacked(p).view(K // GROUP, GROUP, N).to(x.dtype) - z[:, None]) * s[:, None]
    return x @ w.view(K, N)


def by_repetition(x: Tensor, p: Tensor, s: Tensor, z: Tensor) -> Tensor:
    w = (unpacked(p).to(x.dtype) - z.repeat_interleave(GROUP, 0)) * s.repeat_interleave(GROUP, 0)
    return x @ w


def by_halves(x: Tensor, p: Tensor, s: Tensor, z: Tensor) -> Tensor:
    """Each half of a group is in one half of its bytes."""
    bytes_ = p.view(K // GROUP, GROUP // 2, N)
    q = torch.cat((bytes_ & 15, bytes_ >> 4), 1)
    return x @ ((q.to(x.dtype) - z[:, None]) * s[:, None]).view(K, N)


def by_signs(x: Tensor, p: Tensor, s: Tensor, z: Tensor) -> Tensor:
    signed = p.to(torch.int8)
    q = torch.stack(((signed << 4) >> 4, signed >> 4), 1).reshape(K, N)
    return x @ (q.to(x.dtype) * s.repeat_interleave(GROUP, 0))


@pytest.mark.parametrize("written", [by_views, by_repetition, by_halves, by_signs])
def test_dequantisation_is_part_of_the_product(written: Callable[..., Tensor]) -> None:
    x, operands = drawn(3, K, dtype=torch.bfloat16), packed_and_scaled()
    workload = of_one_kernel(written, x, *operands)
    packed = [t for t in workload.inputs if t.dtype == "uint8"]
    assert [t.bytes for t in packed] == [K // 2 * N]
    # Every byte is read by one index for both of its numbers.
    reads = {a for stage in workload.stages for a in accesses(stage.expression) if a.tensor == packed[0].name}
    assert len(reads) == 1
    wide = [t.double() if t.is_floating_point() else t for t in (x, *operands)]
    assert_equal(written, (x, *operands), written(*wide))


@pytest.mark.parametrize("written", [by_views, by_signs])
def test_kernels_of_written_dequantisation_are_right(written: Callable[..., Tensor], tmp_path: Path) -> None:
    operands = (drawn(3, K, dtype=torch.bfloat16), *packed_and_scaled())
    workload = of_one_kernel(written, *operands)
    assert not faults(workload, samples=1)


class Int8Weight(Tensor):
    """Numbers of 8 bits and a scale each row, which every operator takes dequantised, as those of torchao."""

    numbers: Tensor
    scales: Tensor

    @staticmethod
    def __new__(cls: type[Int8Weight], numbers: Tensor, scales: Tensor) -> Int8Weight:
        # PyTorch's stubs leave it out.
        made = cast(Any, Tensor)._make_wrapper_subclass(cls, numbers.shape, dtype=scales.dtype)
        made.numbers, made.scales = numbers, scales
        return made

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["numbers", "scales"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], context: None, size: Any, stride: Any) -> Int8Weight:
        return Int8Weight(inner["numbers"], inner["scales"])

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, given: Any = (), keywords: Any = None) -> Any:
        if function is torch.ops.aten.detach.default:
            return Int8Weight(given[0].numbers, given[0].scales)

        def plain(x: Any) -> Any:
            return x.numbers.to(x.scales.dtype) * x.scales[:, None] if isinstance(x, Int8Weight) else x

        return function(*torch.utils._pytree.tree_map(plain, given), **(keywords or {}))


def test_weights_that_are_a_subclass_are_read_as_what_they_hold(tmp_path: Path) -> None:
    x, layer = drawn(3, K, dtype=torch.bfloat16), torch.nn.Linear(K, N, dtype=torch.bfloat16)
    held = Int8Weight(integers(-128, 128, N, K, dtype=torch.int8), scales(N).bfloat16())
    layer.weight = torch.nn.Parameter(held, requires_grad=False)
    # In a graph they are taken apart: without a record it names its first kernel.
    explained = autosched.explain(layer.requires_grad_(False), x, options={"log": str(tmp_path / "empty.jsonl")})
    assert "64x64 int8 to bfloat16" in str(explained)
    # They have no memory, which a kernel could be given.
    for given in ((layer, x), (lambda x, w: x @ w.T, x, held)):
        with pytest.raises(InputError, match="is Int8Weight, a tensor made of others"):
            trace(*given)
