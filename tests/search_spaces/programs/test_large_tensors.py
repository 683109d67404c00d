"""Tensors of 2^31 elements and more: offsets of 64 bits where they may be too large for 32, and of 32 elsewhere."""

from __future__ import annotations

import dataclasses
import mmap
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import autosched
from autosched import backends, ops
from autosched.backends import spaces
from autosched.backends.build import build, render
from autosched.backends.triton import compile
from convolutions import convolution
from cuda_on_cpu import EmulatedProgram
from search_spaces import InputError, Schedule, Target, Workload, target_named
from search_spaces.programs.addressing import address, why_uncounted
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.interpreting.interpreter import interpret
from search_spaces.programs.statements import Load, Store, statements
from search_spaces.programs.tile_program import loop_extents
from structured_workloads import pooled

H200, A100, CPU = target_named("h200"), target_named("a100"), autosched.cpu_target()
LARGE: dict[str, Callable[[], Workload]] = {
    "matrix-vector": lambda: ops.matmul(2049, 1, 2**20, dtype="float32"),
    "product": lambda: ops.matmul(2**16, 2**16, 256, dtype="bfloat16"),
    "pooling": lambda: pooled(1024, 2048, 2048),
    "softmax": lambda: ops.softmax(2**16, 2**16, dtype="bfloat16"),
    # A plane and a channel more than 2^31 elements.
    "convolution": lambda: convolution((513, 512), (3, 3), 64, 64, batch=128, padding=1),
    "convolution, channels first": lambda: convolution((512, 512), (3, 3), 65, 65, batch=128, padding=1, layout="nchw"),
    "depthwise": lambda: convolution((512, 512), (3, 3), 65, 65, batch=128, padding=1, groups=65),
    "points": lambda: ops.pointwise(2**16, 65539, "bias_silu_residual", dtype="bfloat16"),
}


def some(workload: Workload, target: Target, backend: str, count: int = 3) -> list[Schedule]:
    """Where to start, and so many others."""
    space = spaces.build(workload, target, [backends.named(backend)])
    rng = np.random.default_rng(0)
    return [*space.seeds()[:1], *(space.sample(rng) for _ in range(count))]


def is_wide(schedule: Schedule) -> bool:
    """Whether some load or store by pointers needs offsets of 64 bits."""
    program = schedule.program
    moves = [(k, s) for k in program.kernels for s in statements(k.body) if isinstance(s, Load | Store)]
    places = [address(program.buffer(s.buffer), s.slices, loop_extents(k)) for k, s in moves if s.via == "pointer"]
    return any(place.wide for place in places)


@pytest.mark.parametrize("backend", ["triton", "cuda"])
@pytest.mark.parametrize("name", LARGE)
def test_offsets_are_in_64_bits_where_they_need_be(name: str, backend: str) -> None:
    word = {"triton": "tl.int64", "cuda": "ll"}[backend]
    found = some(LARGE[name](), H200, backend)
    assert any(map(is_wide, found))
    for schedule in found:
        assert word in render(schedule, H200) or not is_wide(schedule)


@pytest.mark.parametrize(
    ("name", "backend"), [(name, ("triton", "cuda")[number % 2]) for number, name in enumerate(LARGE)]
)
def test_kernels_of_large_tensors_compile(name: str, backend: str) -> None:
    schedule = next(s for s in some(LARGE[name](), H200, backend, 8) if is_wide(s))
    artefact = build(schedule.program, schedule.one_line, H200, backends.named(backend))
    assert artefact.binaries


def test_no_offset_of_an_ordinary_kernel_is_in_64_bits() -> None:
    for schedule in some(ops.matmul(512, 512, 512), H200, "triton"):
        assert not is_wide(schedule)
        assert "int64" not in render(schedule, H200)


def far_apart(rows: int, columns: int) -> tuple[Workload, torch.Tensor, torch.Tensor]:
    """The sums of rows of which each begins 2^31 + 8 elements after the one before it, and memory that holds them: no
    more of it than is written is ever taken."""
    (x,) = ops.row_sum(rows, columns, dtype="float32").inputs
    apart = 2**31 + 8
    workload = ops.row_sum(rows, columns, dtype="float32")
    workload = dataclasses.replace(workload, inputs=(dataclasses.replace(x, strides=(apart, 1)),))
    memory = mmap.mmap(-1, 4 * (apart * (rows - 1) + columns), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _RESERVED)
    given = torch.frombuffer(memory, dtype=torch.float32).as_strided((rows, columns), (apart, 1))
    given.copy_(torch.randn(rows, columns, generator=torch.Generator().manual_seed(0)))
    return workload, given, given.double().sum(1).float()


# Memory that is not set aside before it is written (Linux, mman.h).
_RESERVED = 0x4000


def test_rows_that_are_far_apart_are_added_on_a_cpu() -> None:
    workload, x, expected = far_apart(3, 70)
    backend = backends.named("llvm")
    for schedule in some(workload, CPU, "llvm"):
        out = torch.empty(3)
        launcher = backend.load(build(schedule.program, schedule.one_line, CPU, backend), schedule.program)
        launcher([x, out])
        launcher.unload()
        torch.testing.assert_close(out, expected)


def test_rows_that_are_far_apart_are_added_by_cuda(tmp_path: Path) -> None:
    workload, x, expected = far_apart(3, 70)
    for number, schedule in enumerate(some(workload, A100, "cuda", 2)):
        out = torch.empty(3)
        (tmp_path / str(number)).mkdir()
        EmulatedProgram(schedule.program, A100, tmp_path / str(number))([x, out])
        torch.testing.assert_close(out, expected)


def test_rows_that_are_far_apart_are_added_by_the_interpreter() -> None:
    workload, x, expected = far_apart(3, 70)
    for schedule in some(workload, H200, "triton"):
        (out,) = interpret(schedule.program, [x.numpy()])
        np.testing.assert_allclose(out, expected.numpy(), rtol=1e-5)


def test_triton_multiplies_rows_that_are_far_apart_in_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    workload, x, _ = far_apart(3, 70)
    seen: list[str] = []
    described = compile._described

    def keep(made: Any, *rest: Any) -> Any:
        seen.append(made.asm["ptx"])
        return described(made, *rest)

    monkeypatch.setattr(compile, "_described", keep)
    for schedule in some(workload, H200, "triton"):
        build(schedule.program, schedule.one_line, H200, backends.named("triton"))
        # In bytes.
        assert re.search(rf"(mul|mad)\.lo\.s64 .* {4 * x.stride(0)}", seen[-1])


def test_an_axis_that_32_bits_do_not_count_is_refused() -> None:
    with pytest.raises(InputError, match=r"size 2147483648; at most 2147483647 \(2\^31 - 1\) is allowed along a dim"):
        ops.pointwise(2, 2**31, "silu")


def test_a_grid_that_32_bits_do_not_count_is_refused() -> None:
    axes = (GridAxis("m.0", 2**16), GridAxis("n.0", 2**15))
    assert why_uncounted(Grid(axes)) == "a grid of 2147483648 tiles; GPUs count at most 2147483647"
    assert why_uncounted(Grid((axes[0], GridAxis("n.0", 2**15 - 1)))) is None
    assert why_uncounted(Grid((GridAxis("m.0", 2**31 - 100),), persistent=132)) is not None
