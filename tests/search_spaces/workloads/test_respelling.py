"""What is scheduled of a workload depends on its canonical form alone, and computes what the workload does."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

import autosched
import best_spaces
import traced_cases
from autosched import backends
from autosched.checking.correctness import expect, why_wrong
from autosched.checking.random_inputs import random_inputs
from autosched.machine import devices
from autosched.machine.element_types import torch_dtype
from random_workloads import random_workload
from respelled_workloads import WAYS
from scheduled_tensors import interpreted
from search_spaces import (
    Axis,
    EmptySearchSpaceError,
    InputError,
    Schedule,
    SearchSpace,
    Stage,
    Target,
    Tensor,
    Workload,
    target_named,
)
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from tuning_logs import TuningLog, shipped_logs

TARGETS = (target_named("h200"), devices.cpu_target())
SEEDS = range(11)
# Of the axes of stages: what the interpreter computes in milliseconds.
MOST_POINTS = 2**18


@functools.cache
def drawn() -> tuple[Workload, ...]:
    return tuple(map(random_workload, SEEDS))


@functools.cache
def traced() -> tuple[Workload, ...]:
    """Those of functions."""
    found: dict[str, Workload] = {}
    # Every third: which ways there are to write a workload hangs on few of its parts.
    for function, *arguments in [*traced_cases.CASES.values()][::3]:
        with contextlib.suppress(InputError):
            found |= {w.key: w for w in autosched.trace(function, *arguments).workloads}
    return tuple(found.values())


@functools.cache
def recorded() -> tuple[Workload, ...]:
    """Those of the logs that come with the project."""
    logs = shipped_logs()[::3]
    return tuple({r.workload.key: r.workload for path in logs for r in TuningLog(path).records()}.values())


each_kind = pytest.mark.parametrize("known", [drawn, traced, recorded], ids=lambda known: known.__name__)
Known = Callable[[], tuple[Workload, ...]]


@functools.cache
def scheduled_again(known: Known) -> tuple[tuple[Workload, Workload], ...]:
    """Every workload, and what is scheduled of it as a workload of its own, of which nothing is known."""
    return tuple((w, Workload.from_json(w.scheduled.to_json())) for w in known())


def respelled(w: Workload, seed: int) -> Workload:
    """The workload written in all other ways together, one after the other in any order."""
    rng = np.random.default_rng(seed)
    for number in rng.permutation(len(WAYS)):
        w = WAYS[number](w, rng)
    return w


def spaces(workload: Workload) -> list[SearchSpace]:
    """On both targets, where there are any."""
    found = []
    for target in TARGETS:
        with contextlib.suppress(EmptySearchSpaceError):
            found.append(best_spaces.build(workload, target))
    return found


def sampled(space: SearchSpace, count: int, seed: int) -> list[Schedule]:
    rng = np.random.default_rng(seed)
    return [space.sample(rng) for _ in range(count)]


def text(schedule: Schedule, target: Target) -> str:
    return backends.named(schedule.backend).render(schedule.program, schedule.one_line, target)


@each_kind
def test_workloads_of_one_key_are_scheduled_as_one(known: Known) -> None:
    for number, w in enumerate(known()):
        again = respelled(w, number)
        assert again.key == w.key, f"{w}\n{again}"
        assert again.scheduled == w.scheduled, f"{w.scheduled}\n{again.scheduled}"


@each_kind
def test_workloads_of_one_key_have_one_space_and_its_schedules_one_text(known: Known) -> None:
    # Printing takes a second for some: a few of the many that are recorded.
    for number, w in [*enumerate(known())][:: 1 + len(known()) // 12]:
        pairs = zip(spaces(w), spaces(respelled(w, number)), strict=True)
        for mine, other in pairs:
            shown = f"{w}\n{other.workload}"
            assert other.target == mine.target, shown
            assert [(s.name, s.knobs) for s in other.sketches] == [(s.name, s.knobs) for s in mine.sketches], shown
            assert other.remarks == mine.remarks, shown
            for one, two in zip(sampled(mine, 3, number), sampled(other, 3, number), strict=True):
                assert (two.to_json(), two.backend) == (one.to_json(), one.backend), shown
                assert text(two, mine.target) == text(one, mine.target), shown
            assert [s.to_json() for s in other.seeds()] == [s.to_json() for s in mine.seeds()], shown


@each_kind
def test_what_is_scheduled_is_scheduled_as_it_is(known: Known) -> None:
    for _, again in scheduled_again(known):
        assert again.scheduled == again, f"{again}\n{again.scheduled}"


@each_kind
def test_what_is_scheduled_has_the_key_where_all_memory_is_read(known: Known) -> None:
    same = 0
    for w, made in scheduled_again(known):
        whole = [t.span for t in made.inputs] == [w.inputs[n].span for n in w.canonical.inputs]
        assert (made.key == w.key) == whole, f"{w}\n{made}"
        assert made.family == w.family
        same += whole
    assert same > len(known()) / 2


@each_kind
def test_schedules_compute_what_is_written_however_that_is(known: Known) -> None:
    for number, w in enumerate(known()):
        if max(math.prod(s.extents.values()) for s in w.stages) > MOST_POINTS:
            continue
        again = respelled(w, number)
        inputs = random_inputs(again, seed=number)
        expected = expect(again, inputs)
        given = [x.double() if x.is_floating_point() else x for x in inputs]
        for space in spaces(again):
            schedule = space.sample(np.random.default_rng(number))
            got = interpreted(again, schedule.program, given)
            for made, tensor, right in zip(got, again.outputs, expected, strict=True):
                rounded = torch.from_numpy(made).to(torch_dtype(tensor.dtype))
                assert why_wrong(rounded, right) is None, f"{again}\n{schedule}"


def test_a_tensor_that_is_looked_up_may_have_several_dimensions_of_one_position() -> None:
    i, j = axis_index("i"), axis_index("j")
    x, at = Tensor("x", (17, 65, 1, 1), "float32", (65, 1, 1, 1)), Tensor("at", (17,), "int64")
    looked_up = ex.Gather("x", (ex.Access("at", (i,)), j, Affine(), Affine()))
    sum_of_both = ex.add(ex.Access("x", (i, j, Affine(), Affine())), looked_up)
    workload = Workload("both", (x, at), (Stage("out", (Axis("i", 17), Axis("j", 65)), sum_of_both),))
    schedule = sampled(best_spaces.build(workload, TARGETS[1]), 1, seed=0)[0]
    inputs = random_inputs(workload, seed=0)
    (got,) = interpreted(workload, schedule.program, [x.double() if x.is_floating_point() else x for x in inputs])
    assert why_wrong(torch.from_numpy(got), expect(workload, inputs)[0]) is None
