"""Long segments apart: every row is computed by one of two kernels, whatever the ends are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.backends import spaces
from autosched.backends.build import build
from autosched.backends.triton.backend import TritonBackend
from autosched.checking.reference import evaluate
from cost_models.program_counts import count
from scheduled_tensors import given_back, interpreted, taken_by_name
from search_spaces import Schedule, SearchSpace, Target, Workload, ops, target_named
from search_spaces.decisions.decision import each_body
from search_spaces.programs.statements import Store
from segmented_workloads import grouped_product

# One unit, so that programs are persistent with few tiles.
H200 = target_named("h200")
TARGET = replace(H200, num_sms=1)
ROWS, GROUPS = 100, 4
MADE = grouped_product(ROWS, 32, 24, GROUPS, "float16")
TRITON = TritonBackend()
# Products of these numbers are exact in float32, and sums of them are rounded to float16 once.
TOLERANCE = 2e-3


def in_segments(made: Workload, target: Target = TARGET) -> SearchSpace:
    space = spaces.build(made, target, [TRITON])
    return replace(space, sketches=tuple(s for s in space.sketches if s.name == "segmented_contraction"))


SPACE = in_segments(MADE)


def apart(space: SearchSpace, *sizes: int) -> SearchSpace:
    """The space with such kernels of long segments alone."""
    (sketch,) = space.sketches
    knobs = tuple(k.restricted(sizes) if k.name == "long" else k for k in sketch.knobs)
    return replace(space, sketches=(replace(sketch, knobs=knobs),))


LONG = apart(SPACE, 64, 128)


def drawn(seed: int) -> Schedule:
    """A random schedule with a kernel of long segments."""
    return LONG.sample(np.random.default_rng(seed))


def inputs_of(ends: Sequence[int], seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.tensor(ends, dtype=torch.int32)
        if t.name == "ends"
        else torch.randint(-8, 9, t.shape, generator=generator).to(torch.float16) / 8
        for t in MADE.inputs
    ]


def check(schedule: Schedule, got: Any, inputs: Sequence[torch.Tensor]) -> None:
    (expected,) = evaluate(MADE, inputs)
    np.testing.assert_allclose(got, expected, rtol=TOLERANCE, atol=TOLERANCE, err_msg=schedule.one_line)


# Mixtures of lengths; all rows in one segment; lengths at which segments become long; rows behind the last end.
cuts = st.lists(st.integers(-3, ROWS + 9), min_size=GROUPS, max_size=GROUPS).map(sorted)
cuts |= st.lists(st.sampled_from([0, ROWS]), min_size=GROUPS, max_size=GROUPS).map(sorted)
cuts |= st.lists(st.sampled_from([32, 33, 64, 65, 97]), min_size=GROUPS, max_size=GROUPS).map(sorted)


@given(ends=cuts, seed=st.integers(0, 2**20))
@settings(max_examples=12, deadline=None)
def test_every_element_is_stored_once_by_one_of_the_kernels(ends: list[int], seed: int) -> None:
    """Stores add here, to zeros: what both kernels store would be the sum."""
    schedule, inputs = drawn(seed), inputs_of(ends, seed)
    adding = each_body(schedule.program, lambda s: replace(s, atomic=True) if isinstance(s, Store) else s)
    outputs = tuple(b.name for b in adding.buffers if b.role == "output")
    (got,) = interpreted(MADE, replace(adding, zeroed=outputs), [x.numpy() for x in inputs])
    check(schedule, got, inputs)


@given(ends=st.permutations([-9, 5, 80, 2**31 - 1]), seed=st.integers(0, 2**20))
@settings(max_examples=4, deadline=None)
def test_nothing_is_stored_outside_of_the_output_whatever_the_ends_are(ends: list[int], seed: int) -> None:
    """The interpreter asserts that places outside of a buffer are tested."""
    interpreted(MADE, drawn(seed).program, [x.numpy() for x in inputs_of(ends)])


def persistent() -> Schedule:
    """A schedule whose kernels both end behind their last item."""
    found = (s for s in SPACE.seeds() if dict(s.values)["long"])
    return next(s for s in found if all(k.grid.live for k in s.program.kernels))


ENDS = ([0, 0, ROWS, ROWS], [0, 0, 0, 0], [20, 40, 60, 80], [3, 36, 90, ROWS], [7, 75, 75, 80])


@pytest.mark.parametrize("ends", ENDS)
def test_persistent_programs_in_triton_end_behind_the_last_item_of_each_kernel(
    triton_interpreter: Any, ends: list[int]
) -> None:
    schedule, inputs = persistent(), inputs_of(ends)
    program = schedule.program
    source = TRITON.render(program, "", TARGET)
    given = taken_by_name(MADE, program, [x.numpy() for x in inputs])
    (got,) = given_back(MADE, program, triton_interpreter.run_all(source, program, given))
    check(schedule, got, inputs)


def test_both_kernels_compile() -> None:
    schedule = persistent()
    assert len(schedule.program.kernels) == 2
    assert build(schedule.program, schedule.one_line, TARGET, TRITON).binaries


def starts(groups: int, rows: int) -> list[Schedule]:
    return in_segments(ops.grouped_matmul(groups, rows, 256, 128), H200).seeds()


def test_starts_of_few_rows_a_segment_have_long_ones_apart_as_well() -> None:
    found = {dict(s.values)["long"] for s in starts(128, 2048)}
    assert found == {0, 128}
    assert {dict(s.values)["long"] for s in starts(8, 4096)} == {0}


def test_starts_have_tiles_for_all_rows_in_one_segment_where_segments_have_few() -> None:
    largest = {rows: max(s.knobs.tile("m") for s in starts(8, rows)) for rows in (16, 20, 32, 40, 256, 512)}
    assert largest == {16: 16, 20: 32, 32: 32, 40: 64, 256: 128, 512: 64}


def test_two_programs_of_such_starts_fit_in_a_multiprocessor() -> None:
    space = in_segments(ops.grouped_matmul(128, 2048, 256, 1024), H200)
    pairs = [s for s in space.seeds() if s.knobs.integer("per_sm") == 2 and not s.knobs["long"]]
    needs = [TRITON.limits.needs(s.program, s.program.kernels[-1], H200) for s in pairs]
    assert len(pairs) > 8
    assert all(2 * need.shared_memory_bytes <= H200.shared_memory_bytes for need in needs if need)


def test_long_tiles_are_longer_than_others() -> None:
    schedule = persistent()
    values = {**schedule.knobs, "long": 64}
    sketch = SPACE.sketch(schedule.sketch)
    reasons = {rows: sketch.why_illegal(type(schedule.knobs)({**values, "m": (0, rows)})) for rows in (32, 64)}
    assert reasons[32] is None or "long=" not in reasons[32]
    assert "expected 128 at least" in str(reasons[64])


def test_costs_of_equal_segments_are_those_of_one_of_the_kernels() -> None:
    """Segments of 16 rows on average are short, and those of 50 are long where the longer tile has 64 rows."""
    few = next(s for s in starts(128, 2048) if dict(s.values)["long"])
    half_long = in_segments(grouped_product(50 * GROUPS, 32, 24, GROUPS, "float16"))
    many = apart(half_long, 64).sample(np.random.default_rng(0))
    for schedule, works in ((few, [True, False]), (many, [False, True])):
        counts = [c for c in count(schedule.program) if c.dots]
        assert [c.dot_flops > 0 for c in counts] == works, schedule.one_line
