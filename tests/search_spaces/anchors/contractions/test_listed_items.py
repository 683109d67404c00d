"""Work items from a list: producers and consumers end behind the last of them, and compute every row once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from autosched import backends
from autosched.backends import spaces
from autosched.backends.build import build
from autosched.backends.cuda.hopper.plan import OFFERS
from autosched.backends.gpu.warps import WGMMA
from autosched.checking.reference import evaluate
from autosched.checking.trial_data import TrialData
from autosched.machine import devices
from needed import needs_hopper
from schedule_checks import fault
from scheduled_tensors import given_back, interpreted, taken, taken_by_name
from search_spaces import Schedule, SearchSpace, Target, Workload, ops, target_named
from search_spaces.programs.interpreting.interpreter import interpret
from search_spaces.programs.interpreting.roles import RunRoles, why_unsound
from search_spaces.programs.roles.making import roles_of
from search_spaces.programs.statements import For, statements

# One unit, so that programs are persistent with few tiles, and one of them computes several items.
TARGET = replace(target_named("h200"), num_sms=2)
MADE = ops.grouped_matmul(4, 200, 256, 128, "float16")
ENDS = ([0, 0, 200, 200], [0, 0, 0, 0], [50, 100, 150, 200], [3, 76, 190, 195])
KINDS = ("cooperative", "pingpong")
BACKENDS = ("triton", "cuda")
# Products of these numbers are exact in float32, and sums of them are rounded to float16 once.
TOLERANCE = 2e-3


def listed(made: Workload, target: Target, backend: str, kind: str, **more: Sequence[Any]) -> SearchSpace:
    """Schedules of persistent programs that read the list, in an order that has its last items last."""
    space = spaces.build(made, target, [backends.named(backend)])
    allowed = {"grid": ["persistent"], "order": ["row_major"], "items": ["list"], "long": [0], "specialize": [kind]}
    return space.restricted("segmented_contraction", **{**allowed, **more})


def drawn(backend: str, kind: str, seed: int = 0) -> Schedule:
    return listed(MADE, TARGET, backend, kind).sample(np.random.default_rng(seed))


def inputs_of(ends: Sequence[int]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    numbers = (torch.randint(-8, 9, t.shape, generator=generator).to(torch.float16) / 8 for t in MADE.inputs[:2])
    return [*numbers, torch.tensor(ends, dtype=torch.int32)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_roles_compute_what_the_program_says(backend: str, kind: str) -> None:
    for seed, ends in enumerate(ENDS[::3]):
        schedule, inputs = drawn(backend, kind, seed), inputs_of(ends)
        (kernel,) = (k for k in schedule.program.kernels if k.launch.producer_warps)
        rng, roles = np.random.default_rng(seed), roles_of(kernel, WGMMA, OFFERS)
        assert why_unsound(roles, rng) is None, schedule.one_line
        given = taken(MADE, schedule.program, [x.numpy() for x in inputs])
        by_roles = RunRoles(lambda k, own=kernel, made=roles: made if k is own else None, rng)
        (got,) = given_back(MADE, schedule.program, interpret(schedule.program, given, by_roles))
        (expected,) = evaluate(MADE, inputs)
        np.testing.assert_allclose(got, expected, rtol=TOLERANCE, atol=TOLERANCE, err_msg=schedule.one_line)


@pytest.mark.parametrize("ends", ENDS)
def test_programs_in_triton_end_behind_the_last_item(triton_interpreter: Any, ends: list[int]) -> None:
    schedule, inputs = drawn("triton", "none"), inputs_of(ends)
    program = schedule.program
    assert program.kernels[-1].grid.live
    source = backends.named("triton").render(program, "", TARGET)
    given = taken_by_name(MADE, program, [x.numpy() for x in inputs])
    (got,) = given_back(MADE, program, triton_interpreter.run_all(source, program, given))
    (expected,) = evaluate(MADE, inputs)
    np.testing.assert_allclose(got, expected, rtol=TOLERANCE, atol=TOLERANCE)
    (whole,) = interpreted(MADE, program, [x.numpy() for x in inputs])
    np.testing.assert_allclose(whole, expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize(("backend", "kind"), [("triton", "pingpong"), ("cuda", "cooperative"), ("cuda", "pingpong")])
def test_text_of_roles_counts_the_items_and_compiles(backend: str, kind: str) -> None:
    schedule = drawn(backend, kind)
    made = backends.named(backend)
    assert "m_live *" in made.render(schedule.program, "", TARGET)
    assert build(schedule.program, schedule.one_line, TARGET, made).binaries


def test_groups_that_alternate_make_equal_steps_as_they_end_behind_the_last_item() -> None:
    (kernel,) = drawn("cuda", "pingpong").program.kernels[1:]
    assert [s.bound for s in statements(kernel.body) if isinstance(s, For)] == [None]
    space = spaces.build(MADE, TARGET)
    turned = (space.mutate(drawn("cuda", "pingpong"), np.random.default_rng(n)) for n in range(40))
    assert all(s.knobs["order"] == "row_major" for s in turned if s.knobs["specialize"] == "pingpong")


def test_tiles_of_rows_are_powers_of_two_and_of_columns_are_not() -> None:
    (sketch,) = listed(MADE, TARGET, "cuda", "cooperative").sketches
    sizes = {k.name: {v[-1] for v in k.values if isinstance(v, tuple)} for k in sketch.knobs if k.name in "mn"}
    assert 96 in sizes["n"]
    assert all(size.bit_count() == 1 for size in sizes["m"])


@pytest.mark.gpu
@needs_hopper
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_kernels_are_right_on_a_gpu_for_any_histogram(backend: str, kind: str) -> None:
    made, target = ops.grouped_matmul(40, 6000, 2880, 192), devices.gpu_target()
    space = listed(made, target, backend, kind)
    schedules = [space.sample(np.random.default_rng(seed)) for seed in range(3)]
    if backend == "cuda":
        clusters = listed(made, target, backend, kind, ctas=[2])
        schedules += [clusters.sample(np.random.default_rng(seed)) for seed in range(3)]
    data = TrialData.drawn(made, 0, torch.device("cuda"))
    found = []
    for division in data.divisions:
        data.divide(division)
        found += [why for schedule in schedules if (why := fault(schedule, data, target))]
    assert not found, "\n".join(found)
