"""Dots by multiply-adds as outer products: what they compute, their loads from shared memory, and their registers."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from autosched.backends import spaces
from autosched.backends.cuda.backend import CudaBackend
from autosched.backends.cuda.dots.operands import Operands
from autosched.backends.cuda.dots.plans import DotPlan
from autosched.backends.cuda.dots.stages import Stage
from autosched.backends.cuda.registers.layouts import position, registers, transposing, vector
from autosched.backends.cuda.source import print_module
from autosched.backends.gpu.warps import WARP
from autosched.checking.trial_data import TrialData
from chained_workloads import attention
from cuda_on_cpu import EmulatedProgram
from figures.compile import compiled
from fused_workloads import gated
from search_spaces import Schedule, Workload, ops, target_named
from search_spaces.programs.statements import Dot, statements
from search_spaces.schedules.knobs import KnobValue

A100, H100 = target_named("a100"), target_named("h100")
# Banks of four bytes, and bytes that they read or write together (CUDA C++ programming guide, shared memory).
BANKS, CYCLE = 32, 128
TILES = [(128, 256, 8), (256, 128, 8), (128, 128, 4), (128, 128, 8), (64, 128, 4), (64, 64, 4), (32, 128, 4)]


def schedule(workload: Workload, m: int, n: int, k: int, **others: KnobValue) -> Schedule:
    """A schedule of one tile a program with tiles of these sizes."""
    space = spaces.build(workload, A100, [CudaBackend()])
    sizes = {"m": m, "n": n, "k": k}
    knobs = {x.name: x for x in space.sketches[0].knobs}
    tiles = {x: [v for v in knobs[x].values if isinstance(v, tuple) and v[-1] == size] for x, size in sizes.items()}
    usual: dict[str, KnobValue] = {"grid": "tiles", "split": 1, "swap": False, "tail": "masked", "max_registers": 0}
    fixed = {x: [value] for x, value in {**usual, **others}.items()}
    return space.restricted("contraction", **tiles, **fixed).sample(np.random.default_rng(0))


def plan_of(made: Schedule) -> tuple[DotPlan, dict[str, Stage], frozenset[str]]:
    kernel = made.program.kernels[0]
    operands = Operands.of(made.program, kernel, A100.features)
    dot = next(s for s in statements(kernel.body) if isinstance(s, Dot))
    return operands.plan(dot), {"a": operands.stages[dot.a], "b": operands.stages[dot.b]}, operands.transposed


@pytest.mark.parametrize(
    ("workload", "m", "n", "k", "others"),
    [
        (ops.matmul(100, 130, 75, layout="nt"), 128, 128, 32, {"warps": 8, "stages": 3}),
        (ops.matmul(64, 64, 320, layout="tn"), 64, 64, 32, {"warps": 2, "stages": 3, "split": 2}),
        (ops.matmul(64, 64, 160, layout="tt", batch=2, epilogue="bias_gelu"), 64, 64, 32, {"warps": 2, "stages": 2}),
        (ops.matmul(64, 64, 224), 32, 64, 16, {"warps": 4, "stages": 4, "grid": "stream_k", "partials": "atomic"}),
        (replace(gated(64, 48, 96, "float32"), precision="ieee"), 32, 16, 16, {"warps": 2, "stages": 1}),
    ],
    ids=["uneven", "split", "batched", "stream_k", "gated"],
)
def test_outer_products_compute_the_product(
    workload: Workload, m: int, n: int, k: int, others: dict[str, KnobValue], tmp_path: Path
) -> None:
    made = schedule(workload, m, n, k, **others)
    assert plan_of(made)[0].outer
    data = TrialData.drawn(workload, 0, torch.device("cpu"))
    data.poison()
    EmulatedProgram(made.program, A100, tmp_path)(data.operands)
    data.judge()


def test_parts_of_a_shared_reduction_begin_in_the_slot_of_their_first_iteration() -> None:
    made = schedule(ops.matmul(64, 64, 224), 32, 64, 16, warps=4, stages=4, grid="stream_k", partials="atomic")
    assert "int slot_k_0 = turn % 4;" in print_module(made.program, "", A100)


@pytest.mark.parametrize(("m", "n", "warps"), TILES)
def test_a_warp_loads_neighbours_of_either_operand_in_two_cycles(m: int, n: int, warps: int) -> None:
    """Halves of a warp read each bank once, and all lanes what one of their next two neighbours reads."""
    plan, stages, _ = plan_of(schedule(ops.matmul(512, 512, 512, layout="nt"), m, n, 16, warps=warps, stages=3))
    for spread, stage in zip(plan.spreads, stages.values(), strict=True):
        assert vector(spread) >= 4
        for warp, register, k in itertools.product(range(warps), range(0, registers(spread), 4), (0, 5)):
            at = [k * stage.pitch + 4 * position(spread, register, lane, warp) for lane in range(WARP)]
            assert any(all(at[x] == at[x ^ other] for x in range(WARP)) for other in (1, 2))
            for half in (at[: WARP // 2], at[WARP // 2 :]):
                banks = [(x // 4 + word) % BANKS for x in {*half} for word in range(4)]
                assert len(banks) == len({*banks}) <= CYCLE // 4


@pytest.mark.parametrize(("m", "n", "warps"), TILES)
def test_threads_have_as_many_rows_as_columns_or_twice_as_many(m: int, n: int, warps: int) -> None:
    plan, _, _ = plan_of(schedule(ops.matmul(512, 512, 512), m, n, 16, warps=warps, stages=3))
    rows, columns = plan.registers
    assert rows * columns == m * n // (warps * WARP)
    assert 1 / 2 <= columns / rows <= 2


@pytest.mark.parametrize(("free", "warps"), [(128, 4), (256, 8), (64, 4)])
def test_transposed_copies_read_whole_sectors_and_write_to_different_banks(free: int, warps: int) -> None:
    layout, (_, stages, transposed) = (
        transposing({"k": 16, "m": free}, warps),
        plan_of(schedule(ops.matmul(512, 512, 512, layout="nt"), free, 64, 16, warps=warps, stages=3)),
    )
    assert len(transposed) == 2
    for warp in range(warps):
        held = [(position(layout["k"], 0, lane, warp), position(layout["m"], 0, lane, warp)) for lane in range(WARP)]
        assert len({(k // 8, m) for k, m in held}) == WARP // 8
        assert len({(k * stages["a"].pitch // 4 + m) % BANKS for k, m in held}) == WARP


def test_operands_that_are_computed_are_read_as_they_were() -> None:
    """Attention's rows of the second product: dots that share their rows keep one layout of them."""
    space = spaces.build(attention(2, 96, 80, 64, dtype="float32"), A100, [CudaBackend()])
    program = space.seeds()[0].program
    operands = Operands.of(program, program.kernels[0], A100.features)
    assert not operands.transposed
    assert not any(plan.outer for plan in operands.plans.values())


def test_results_are_stored_from_the_registers_that_they_are_in() -> None:
    text = print_module(schedule(ops.matmul(512, 512, 512), 128, 128, 16, warps=8, stages=3).program, "", A100)
    assert "acc_moved" not in text
    assert "acc_stored" not in text


@pytest.mark.parametrize("layout", ["nn", "nt"])
def test_starts_of_products_without_matrix_instructions_keep_all_sums_in_registers(layout: str) -> None:
    seeds = spaces.build(ops.matmul(1024, 4096, 4096, layout=layout), H100, [CudaBackend()]).seeds()
    assert all(s.knobs["a_load"] == s.knobs["b_load"] == "pointer" for s in seeds)
    for seed in seeds[:2]:
        made = compiled(seed, H100)
        assert not made.refused
        assert made.spill_bytes == 0
