"""Dots in CUDA C++: what they compute, run on the CPU; by which instructions; and what they need, told before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from autosched.backends import spaces
from autosched.backends.cuda.backend import CudaBackend
from autosched.backends.cuda.registers.shared import SharedMemory
from autosched.backends.cuda.resources import has_dots, resources
from autosched.backends.cuda.source import launched, print_module
from autosched.backends.printing.scope import Block, Scope
from autosched.checking.trial_data import TrialData
from chained_workloads import attention, folded_product, gradients
from cuda_on_cpu import EmulatedProgram
from fused_workloads import gated, prepared
from search_spaces import Schedule, Workload, ops, target_named
from search_spaces.schedules.space import SearchSpace

PRODUCT = (96, 80, 112)
ODD = (61, 53, 75)


def tf32(workload: Workload) -> Workload:
    return replace(workload, precision="tf32")


def space_of(workload: Workload, target: str) -> SearchSpace:
    return spaces.build(workload, target_named(target), [CudaBackend()])


def with_dots(workload: Workload, target: str, drawn: int) -> list[Schedule]:
    """Starting points and others, of one block for a tile, whose kernels have dots."""
    space, rng = space_of(workload, target), np.random.default_rng(0)
    found = dict.fromkeys([*space.seeds(), *(space.sample(rng) for _ in range(drawn))])
    return [
        s
        for s in found
        if any(map(has_dots, s.program.kernels)) and not any(k.launch.producer_warps for k in s.program.kernels)
    ]


CASES = [
    (ops.matmul(*PRODUCT, dtype="float16", layout="tt", epilogue="gelu"), "v100"),
    (ops.matmul(*ODD, dtype="float16", layout="nt"), "v100"),
    (ops.matmul(*PRODUCT, dtype="float16"), "t4"),
    (ops.matmul(64, 96, 160, dtype="int8"), "t4"),
    (ops.matmul(*PRODUCT, dtype="bfloat16", layout="tn"), "a100"),
    (ops.matmul(*ODD, dtype="float16"), "a100"),
    (ops.matmul(64, 96, 160, dtype="int8", layout="nt"), "a100"),
    (tf32(ops.matmul(*PRODUCT, layout="tt")), "a100"),
    (gated(*PRODUCT), "a100"),
    (prepared(*PRODUCT, prologue="normalised", computed="ab"), "a100"),
    (attention(2, 96, 80, 64), "v100"),
    (attention(2, 96, 80, 64), "a100"),
    (gradients(1, 96, 80, 64), "a100"),
    (folded_product(96, 80, 112, "softmax"), "v100"),
    (folded_product(61, 53, 75, "layer_norm"), "a100"),
]


# Of every other one the first starting point, of the rest the last schedule that was drawn.
@pytest.mark.parametrize(
    ("which", "workload", "target"),
    [(-(number % 2), *case) for number, case in enumerate(CASES)],
    ids=lambda x: x if isinstance(x, str) else f"{x.name}_{x.inputs[0].dtype}" if isinstance(x, Workload) else "",
)
def test_a_kernel_with_dots_computes_what_it_should(
    which: int, workload: Workload, target: str, tmp_path: Path
) -> None:
    schedules = with_dots(workload, target, 3)
    data = TrialData.drawn(workload, 0, torch.device("cpu"))
    data.poison()
    EmulatedProgram(schedules[which].program, target_named(target), tmp_path)(data.operands)
    data.judge()


@pytest.mark.parametrize(
    ("workload", "target", "instructions"),
    [
        (ops.matmul(128, 128, 128, dtype="float16"), "v100", ["wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32"]),
        (attention(2, 128, 128, 64), "v100", ["mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"]),
        (ops.matmul(128, 128, 128, dtype="float16"), "t4", ["ldmatrix", "m16n8k8.row.col.f32.f16.f16.f32"]),
        (ops.matmul(128, 128, 128, dtype="int8", layout="nt"), "t4", ["m8n8k16.row.col.s32.s8.s8.s32"]),
        (ops.matmul(128, 128, 128, dtype="bfloat16"), "a100", ["cp.async.cg", "m16n8k16.row.col.f32.bf16.bf16.f32"]),
        (tf32(ops.matmul(128, 128, 128)), "a100", ["cvt.rna.tf32", "m16n8k8.row.col.f32.tf32.tf32.f32"]),
        (ops.matmul(128, 128, 128, dtype="int8"), "a100", ["m16n8k32.row.col.s32.s8.s8.s32"]),
        (ops.matmul(128, 128, 128, dtype="float8_e4m3fn"), "l40s", ["m16n8k32.row.col.f32.e4m3.e4m3.f32"]),
    ],
    ids=lambda x: x.name if isinstance(x, Workload) else x if isinstance(x, str) else "",
)
def test_a_dot_is_the_instruction_of_its_architecture(workload: Workload, target: str, instructions: list[str]) -> None:
    schedule = with_dots(workload, target, 0)[0]
    text = print_module(schedule.program, "", target_named(target))
    assert all(x in text for x in instructions)


@pytest.mark.parametrize(("name", "layout", "depth"), [("v100", "nn", 64), ("v100", "nt", 160), ("t4", "nt", 160)])
def test_operands_take_turns_in_registers(name: str, layout: str, depth: int, tmp_path: Path) -> None:
    """Where more iterations may be on their way than shared memory has; also behind the last iteration."""
    workload = ops.matmul(64, 96, depth, dtype="float16", layout=layout)
    part = space_of(workload, name).restricted("contraction", stages=[4], split=[1], k=[(depth // 32, 32)])
    schedule, target = part.sample(np.random.default_rng(0)), target_named(name)
    assert "put_in0_k_0(k_0 + 1);" in print_module(schedule.program, "", target)
    data = TrialData.drawn(workload, 0, torch.device("cpu"))
    data.poison()
    EmulatedProgram(schedule.program, target, tmp_path)(data.operands)
    data.judge()


@pytest.mark.parametrize("layout", ["nn", "nt"])
def test_a_search_for_volta_starts_from_a_tile_whose_operands_take_turns(layout: str) -> None:
    seed = space_of(ops.matmul(4096, 4096, 4096, dtype="float16", layout=layout), "v100").seeds()[0]
    assert "put_in0_k_0(k_0 + 1);" in print_module(seed.program, "", target_named("v100"))


def test_rows_that_no_copy_is_aligned_with_come_by_way_of_registers() -> None:
    schedule = with_dots(ops.matmul(64, 64, 75, dtype="float16"), "a100", 0)[0]
    text = print_module(schedule.program, "", target_named("a100"))
    assert "in0_ahead" in text
    assert "copy_async_16" in text  # of the other operand


def test_what_a_product_makes_is_multiplied_from_the_registers_that_it_is_in() -> None:
    """Where every warp has whole rows of it."""
    schedules = with_dots(attention(2, 128, 128, 64), "a100", 0)
    rows = next(s for s in schedules if s.program.kernels[0].launch.num_warps == 4)
    assert "pack_float16(" in print_module(rows.program, "", target_named("a100"))


@pytest.mark.parametrize("target", ["v100", "t4", "a100"])
@pytest.mark.parametrize(
    "workload",
    [
        ops.matmul(500, 264, 320, dtype="float16"),
        ops.matmul(500, 261, 320, epilogue="gelu"),
        gated(*PRODUCT),
        prepared(*PRODUCT),
        attention(2, 96, 80, 64),
        gradients(2, 96, 80, 64),
    ],
    ids=lambda w: w.name,
)
def test_shared_memory_is_what_was_told_before(workload: Workload, target: str) -> None:
    device = target_named(target)
    for schedule in with_dots(workload, target, 8):
        program = schedule.program
        for kernel, made in zip(program.kernels, launched(program, device), strict=True):
            if has_dots(kernel):
                assert resources(program, kernel, device).shared_memory_bytes == made.shared_bytes, schedule.one_line


def test_threads_meet_before_they_write_over_operands_of_a_loop_within_a_loop() -> None:
    """Of a product over two axes, say: slow threads still multiply where others exchange their sums already."""
    root = Scope(variables=frozenset())
    shared = SharedMemory(Block(root))
    with shared.repeated(), shared.taken():
        operands = shared.place(16384)
    assert shared.scratch(16384) == f"shared + {operands}"
    assert root.text(0) == ["__syncthreads();"]
