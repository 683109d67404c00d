"""Products of narrow operands from PyTorch: its operators, and dequantisation written out, against float64."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor

import autosched
from autosched import trace
from autosched.tracing.operators import int4_layout, narrow_products
from autosched.tracing.operators.int4_layout import Int4Layout
from autosched.tracing.translation.translate import WithoutKernelError
from narrow_tensors import assert_equal, by_groups, drawn, integers, of_one_kernel, scales
from needed import needs_gpu
from schedule_checks import faults
from search_spaces import InputError
from search_spaces.workloads.expressions.walking import accesses

N, K, GROUP = 64, 64, 32

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


def packed_for_warps(numbers: Tensor, inner: int) -> Tensor:
    """[n, k] as PyTorch packs them for CUDA, thread by thread, of bytes with the even k in the upper bits."""
    n, k = numbers.shape
    bytes_ = (numbers[:, ::2] << 4 | numbers[:, 1::2]).tolist()
    packed = torch.zeros(n // 8, k // (16 * inner), 32, inner // 2, dtype=torch.int64)
    for tile, step, thread, word in itertools.product(*map(range, packed.shape)):
        first = (step * inner + 2 * word) * 8 + thread % 4
        four = [bytes_[8 * tile + thread // 4][first + 4 * j] for j in range(4)]
        halves = [byte >> 4 for byte in four], [byte & 15 for byte in four]
        packed[tile, step, thread, word] = sum(b << 4 * place for place, b in enumerate([*halves[0], *halves[1]]))
    return packed.to(torch.int32)


@pytest.mark.parametrize(("inner", "group", "dtype"), [(2, 32, "bfloat16"), (8, 64, "float16"), (4, 128, "float32")])
def test_int4_weights_are_read_as_pytorch_packs_them_for_gpus(inner: int, group: int, dtype: str) -> None:
    n, k = 24, 384 if inner == 4 else 256
    numbers = integers(0, 16, n, k, dtype=torch.int64)
    both = torch.stack((scales(k // group, n), drawn(k // group, n)), 2).to(getattr(torch, dtype))
    inputs = drawn(3, k, dtype=both.dtype), packed_for_warps(numbers, inner), both
    weights = (numbers.double() - 8) * by_groups(both[..., 0].T, group) + by_groups(both[..., 1].T, group)

    def product(x: Tensor, packed: Tensor, both: Tensor) -> Tensor:
        return torch.ops.aten._weight_int4pack_mm(x, packed, group, both)

    assert_equal(product, inputs, inputs[0].double() @ weights.T)
    workload = of_one_kernel(product, *inputs)
    assert sum(t.bytes for t in workload.inputs if t.dtype == "int32") == n * k // 2
    assert not faults(workload, samples=1)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("inner", [2, 4, 8])
def test_a_gpu_packs_int4_weights_as_they_are_read(inner: int, tmp_path: Path) -> None:
    n, k, group = 64, 256, 64
    numbers = integers(0, 16, n, k, dtype=torch.int64)
    bytes_ = (numbers[:, ::2] << 4 | numbers[:, 1::2]).to(torch.uint8)
    packed = torch.ops.aten._convert_weight_to_int4pack(bytes_.cuda(), inner)
    assert torch.equal(packed.cpu(), packed_for_warps(numbers, inner))
    both = drawn(k // group, n, 2, dtype=torch.bfloat16).cuda()

    def product(x: Tensor, packed: Tensor, both: Tensor) -> Tensor:
        return torch.ops.aten._weight_int4pack_mm(x, packed, group, both)

    inputs = drawn(8, k, dtype=torch.bfloat16).cuda(), packed, both
    # It is compared with PyTorch before its first use.
    kernel = autosched.tune(trace(product, *inputs), trials=8, log=tmp_path / "log.jsonl").kernel
    wanted = product(*inputs).double()
    torch.testing.assert_close(kernel(*inputs).double(), wanted, rtol=2**-6, atol=2e-2 * float(wanted.abs().max()))


def test_int4_weights_in_groups_that_do_not_divide_k_are_left_to_pytorch() -> None:
    with pytest.raises(WithoutKernelError, match="in groups of 96 for k=256"):
        trace(
            lambda x, packed, both: torch.ops.aten._weight_int4pack_mm(x, packed, 96, both),
            *(drawn(3, 256), packed_for_warps(torch.zeros(8, 256, dtype=torch.int64), 2), torch.ones(2, 8, 2)),
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
