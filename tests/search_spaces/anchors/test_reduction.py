"""Reductions of rows as one anchor: which kind a program is, what belongs to it, and where searches start."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import best_spaces
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from row_kinds import KINDS, first_start, kind_of, of_kind
from scanned_workloads import recurrence
from scheduled_tensors import interpreted
from search_spaces import Schedule, ops, target_named
from search_spaces.anchors.thread_tiles import most_elements, thread_tiles
from search_spaces.devices.target import cpu
from search_spaces.programs.statements import For, statements

H200 = target_named("h200")
SPACE = best_spaces.build(ops.softmax(64, 8192, dtype="bfloat16"), H200)


def test_rows_are_resident_streamed_or_shared_equally_often() -> None:
    rng = np.random.default_rng(0)
    counted = Counter(kind_of(SPACE.sample(rng)) for _ in range(600))
    assert counted.keys() == {*KINDS}
    assert all(120 < count < 280 for count in counted.values())


def test_what_a_kind_gives_no_meaning_has_one_value() -> None:
    rng = np.random.default_rng(1)
    plain = {"resident": {"split": 1, "online": False, "accumulate": "point", "stages": 1}, "shared": {"grid": "tiles"}}
    for kind, values in plain.items():
        for schedule in (of_kind(SPACE, kind).sample(rng) for _ in range(20)):
            assert {name: schedule.knobs[name] for name in values} == values


def test_a_change_of_kind_takes_along_what_belongs_to_it() -> None:
    streamed = of_kind(SPACE, "streamed", online=(True,), stages=(3,), accumulate=("row",), split=(1,))
    schedule = SPACE.bind(streamed.sample(np.random.default_rng(2)))
    rng = np.random.default_rng(3)
    near = [SPACE.mutate(schedule, rng) for _ in range(200)]
    assert {kind_of(s) for s in near} == {*KINDS}
    assert all(SPACE.why_illegal(s) is None for s in near)


def test_whole_rows_take_no_loop_and_pieces_take_one_or_more() -> None:
    loops = {
        kind: any(isinstance(s, For) for k in first_start(SPACE, kind).program.kernels for s in statements(k.body))
        for kind in KINDS
    }
    assert loops == {"resident": False, "streamed": True, "shared": True}


TILES: dict[str, Any] = {"rows": [64, 1], "warps": 4, "streaming": False}
CUT = {**TILES, "columns": [8, 1024], "stages": 1}
FOLDED = {**CUT, "online": True}


@pytest.mark.parametrize(
    ("sketch", "values", "kind"),
    [
        ("row_whole", {**TILES, "persistent": False}, "resident"),
        ("row_looped", {**FOLDED, "accumulate": "thread"}, "streamed"),
        ("row_split", {**FOLDED, "split": 4}, "shared"),
    ],
)
def test_records_of_before_are_read_as_the_kind_that_they_were(sketch: str, values: dict[str, Any], kind: str) -> None:
    schedule = SPACE.bind(Schedule.from_json({"sketch": sketch, "values": values}))
    assert kind_of(schedule) == kind
    assert SPACE.why_illegal(schedule) is None


def test_scans_of_before_are_read_as_shared() -> None:
    space = best_spaces.build(recurrence(64, 8192), H200)
    schedule = space.bind(Schedule.from_json({"sketch": "scan_split", "values": {**CUT, "split": 4}}))
    assert kind_of(schedule) == "shared"
    assert len(schedule.program.kernels) == 3


def test_a_cpu_has_the_kinds_that_keep_its_threads_busy() -> None:
    few = cpu("four", lanes=8, threads=4, l1_bytes=32768, l2_bytes=2**20, fp32_flops=1e11)
    one = replace(few, threads=1, num_sms=1)
    kinds = [
        {kind_of(best_spaces.build(ops.row_sum(2, 40_000), t).sample(np.random.default_rng(n))) for n in range(40)}
        for t in (few, one)
    ]
    assert kinds == [{*KINDS}, {"resident", "streamed"}]


def test_tiles_to_start_from_follow_the_device() -> None:
    usual = thread_tiles(H200)
    assert usual[:3] == ((1024, 4), (2048, 4), (4096, 4))
    assert max(size for size, _ in usual) == most_elements(H200) == 32768
    small = thread_tiles(replace(H200, registers_per_sm=8192, threads=256))
    assert max(size for size, _ in small) == 4096
    assert max(waves for _, waves in small) == 8


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_start(kind: str) -> None:
    few = best_spaces.build(ops.softmax(8, 8192, dtype="bfloat16"), H200)
    assert few.why_illegal(first_start(few, kind)) is None


@pytest.mark.parametrize("offsets", [[0, 0, 700, 700], [3, 10, 690, 700]], ids=["one hot", "one long"])
def test_segments_have_starts_in_which_programs_share_the_longest(offsets: list[int]) -> None:
    workload = ops.segment_sum(700, 40, 3, "float16")
    x, ends = random_inputs(workload, seed=1)
    ends.copy_(torch.tensor(offsets))
    (expected,) = expect(workload, [x, ends])
    shared = [s for s in best_spaces.build(workload, target_named("h200")).seeds() if s.knobs.integer("split") >= 16]
    assert shared
    for schedule in shared[:2]:
        (made,) = interpreted(workload, schedule.program, [x.double(), ends])
        assert error_ratio(torch.from_numpy(np.ascontiguousarray(made)), expected) <= 1, schedule.one_line
