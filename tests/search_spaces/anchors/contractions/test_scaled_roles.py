"""Products whose dots are scaled, with a producer: what roles are made of, what compiles, what they compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autosched import backends
from autosched.backends import spaces
from autosched.backends.build import build
from autosched.backends.gpu.warps import WGMMA
from autosched.checking.correctness import expect
from autosched.checking.random_inputs import random_inputs
from autosched.checking.trial_data import Division, TrialData
from autosched.machine import devices
from machine_code import machine_code
from needed import needs_hopper
from schedule_checks import fault
from search_spaces import Schedule, SearchSpace, Target, Workload, ops, target_named
from search_spaces.errors import UnmatchedError
from search_spaces.programs.roles.products import ProductRoles
from search_spaces.programs.roles.statements import Await, Issue, Settle, Steps, nested
from search_spaces.programs.statements import Fill, For, Load, Map, Statement
from search_spaces.programs.tile_program import Kernel

H200 = target_named("h200")


def product(m: int = 2048, n: int = 1024, k: int = 1024, **options: Any) -> Workload:
    usual = {"dtype": "float8_e4m3fn", "layout": "nt", "group": 128, "out_dtype": "bfloat16"}
    return ops.matmul(m, n, k, **{**usual, **options})


BLOCKS = product(block=128)
SCALED = {
    "blocks": BLOCKS,
    "blocks with an epilogue": product(block=128, epilogue="bias_silu"),
    "uneven rows": product(m=200, n=384, block=128),
    "rows and columns": product(),
    "short groups": product(group=64),
    "a batch": product(m=512, n=256, batch=3, block=128),
}


def space_of(workload: Workload, backend: str, target: Target = H200, **allowed: Any) -> SearchSpace:
    whole = spaces.build(workload, target, [backends.named(backend)])
    return whole.restricted("contraction", **{"specialize": ["cooperative", "pingpong"], **allowed})


def kernel_of(schedule: Schedule) -> Kernel:
    return next(k for k in schedule.program.kernels if k.launch.producer_warps)


def roles_of_blocks() -> ProductRoles:
    return ProductRoles.of(kernel_of(space_of(BLOCKS, "triton").seeds()[0]), WGMMA)


def test_the_first_start_has_a_producer() -> None:
    for backend in ("triton", "cuda"):
        first, *_ = spaces.build(BLOCKS, H200, [backends.named(backend)]).seeds()
        assert first.knobs["specialize"] == "cooperative"
        assert not first.knobs["swap"], "a thread has few rows, and many columns to scale"


def test_scales_are_loaded_before_the_dots_and_multiplied_behind_them() -> None:
    """Memory answers while the dots run; sums of two dots at once would not fit."""
    steps = next(s for s in nested(roles_of_blocks().consumer.body) if isinstance(s, Steps))
    kinds = [type(s) for s in steps.body if isinstance(s, Load | Map | Await | Issue | Settle)]
    assert kinds == [Load, Load, Map, Await, Issue, Settle, Map, Map]


def test_a_group_has_registers_for_sums_of_an_iteration_beside_those_of_a_tile() -> None:
    rng = np.random.default_rng(0)
    for backend, most in (("triton", 128), ("cuda", 192)):
        space = space_of(BLOCKS, backend)
        for schedule in (space.sample(rng) for _ in range(20)):
            roles = ProductRoles.of(kernel_of(schedule), WGMMA)
            each = sum(t.elements for t in (*roles.accumulators, *roles.partial)) // WGMMA.threads
            assert each <= most, schedule.one_line


def changed(body: tuple[Statement, ...], change: Callable[[Statement], Statement | None]) -> tuple[Statement, ...]:
    return tuple(new for s in body if (new := change(s)) is not None)


def refusal(change: Callable[[Statement], Statement | None]) -> str:
    """Reason that there are no roles, once the statements of the main loop have changed."""
    kernel = kernel_of(space_of(BLOCKS, "triton").seeds()[0])
    body = tuple(replace(s, body=changed(s.body, change)) if isinstance(s, For) else s for s in kernel.body)
    with pytest.raises(UnmatchedError) as why:
        ProductRoles.of(replace(kernel, body=body), WGMMA)
    return str(why.value)


def test_sums_of_an_iteration_that_do_not_start_from_0_are_refused() -> None:
    reason = refusal(lambda s: None if isinstance(s, Fill) else s)
    assert "its dots add to sums of other iterations, which are scaled; expected them to start from 0" in reason


def test_dots_that_are_scaled_and_added_to_nothing_are_refused() -> None:
    reason = refusal(lambda s: None if isinstance(s, Map) and s.operator == "add" else s)
    assert "sums acc start from 0, and dots add to partial; expected the same" in reason


def test_scales_that_depend_on_earlier_sums_are_refused() -> None:
    def depends(s: Statement) -> Statement:
        return replace(s, arguments=("acc", "acc")) if isinstance(s, Map) and s.dst.name == "scale" else s

    assert "acc is read before the dots that it follows on" in refusal(depends)


def test_scales_by_descriptor_are_refused() -> None:
    operands = {x for s in roles_of_blocks().dots for x in (s.a, s.b)}
    reason = refusal(
        lambda s: replace(s, via="descriptor") if isinstance(s, Load) and s.dst.name not in operands else s
    )
    assert "its loop has a Load; expected loads of operands, dots, and what scales them" in reason


@pytest.mark.parametrize("backend", ["triton", "cuda"])
def test_sums_are_scaled_and_added_by_one_instruction_each(backend: str, tmp_path: Path) -> None:
    """64 sums of a thread: next to nothing besides, and no register leaves for memory."""
    schedule = space_of(BLOCKS, backend, m=[(16, 128)], swap=[False], ctas=[1], stages=[4]).seeds()[0]
    made = build(schedule.program, "", H200, backends.named(backend))
    assert made.facts.spill_bytes == 0
    code = "\n".join(machine_code(made.binaries[0], tmp_path))
    groups = 2 if backend == "triton" else 1  # Triton has a text for each group.
    assert code.count("FFMA") == 64 * groups
    assert code.count("FADD") == 0
    assert 0 < code.count("FMUL") <= 2 * groups
    assert code.count("QGMMA") == 4 * groups


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("backend", ["triton", "cuda"])
def test_every_schedule_that_is_legal_has_roles_and_a_text(name: str, backend: str) -> None:
    space, rng = space_of(SCALED[name], backend), np.random.default_rng(0)
    for schedule in (space.sample(rng) for _ in range(8)):
        text = backends.named(backend).render(schedule.program, "", H200)
        assert ("warpgroup_mma" if backend == "triton" else "dot_") in text


def test_a_scale_that_all_columns_of_a_group_share_is_one_number() -> None:
    """A tile of two blocks of columns has two scales, and each group has one of these blocks."""
    space = space_of(
        SCALED["uneven rows"], "triton", n_axes=["patch"], k_axes=["fused"], m=[(4, 64)], n=[(1, 256)], k=[(2, 64)],
        swap=[True], ctas=[1], split=[2], warps=[8], stages=[3], specialize=["cooperative"],
    )  # fmt: skip
    schedule = space.sample(np.random.default_rng(0))
    assert "in3 = gl.full([128], in3, gl.float32)" in backends.named("triton").render(schedule.program, "", H200)
    assert build(schedule.program, "", H200, backends.named("triton")).facts.spill_bytes == 0


@pytest.mark.gpu
@needs_hopper
@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("backend", ["triton", "cuda"])
def test_kernels_are_right_on_a_gpu_whatever_the_scales(name: str, backend: str) -> None:
    workload, target = SCALED[name], devices.gpu_target()
    space, rng = space_of(workload, backend, target), np.random.default_rng(0)
    schedules = dict.fromkeys([*space.seeds()[:2], *(space.sample(rng) for _ in range(4))])
    for factor in (1e-4, 1.0, 1e4):
        given = zip(workload.inputs, random_inputs(workload, 0, "cuda"), strict=True)
        inputs = [x * factor if "scale" in t.name else x for t, x in given]
        data = TrialData(workload, inputs, [Division({}, expect(workload, inputs))], [0] * (len(inputs) + 1))
        found = [why for schedule in schedules if (why := fault(schedule, data, target))]
        assert not found, "\n".join(found)
