"""Rows that begin nowhere in particular, read from the vector on that each begins in."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import autosched
import best_spaces
from autosched import ops
from autosched.backends.triton.backend import TritonBackend
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from row_kinds import of_kind
from scheduled_tensors import interpreted
from search_spaces import Schedule, SearchSpace, Workload
from search_spaces.devices.target import GPUS

H200 = GPUS["h200"]


def traced(function, *tensors: torch.Tensor) -> Workload:
    (workload,) = autosched.trace(function, *tensors).workloads
    return workload


def half(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.float16)


WORKLOADS = {
    "softmax": ops.softmax(16, 333, dtype="float16"),
    "layer norm with vectors along the row": ops.layernorm(8, 333, dtype="float16"),
    "sum of long rows": ops.row_sum(4, 5001),
    "two types": traced(lambda x, y: (x * y).sum(-1), half(16, 211), torch.empty(16, 211)),
    "rows of images": traced(lambda x: x.mean((2, 3)), half(3, 5, 7, 7)),
    "rows of two axes that do not merge": traced(lambda x, b: (x + b[:, None]).amax(-1), half(4, 5, 301), half(5)),
    "largest element's place": traced(lambda x: x.argmax(-1), half(9, 301)),
    "a row more than vectors": traced(lambda x: torch.logsumexp(x.float(), -1), half(5, 301)),
    "copies of what is summed": traced(lambda x, y: ((x + y).sum(-1), x + y), half(8, 301), half(8, 301)),
}


def aligned(workload: Workload) -> list[tuple[SearchSpace, str]]:
    space = best_spaces.build(workload, H200)
    names = [s.name for s in space.sketches if any(k.name == "aligned" for k in s.knobs)]
    return [(space.restricted(name, aligned=(True,)), name) for name in names]


def samples(workload: Workload, count: int) -> list[Schedule]:
    rng = np.random.default_rng(0)
    return [space.sample(rng) for space, _ in aligned(workload) for _ in range(count)]


@pytest.mark.parametrize("name", WORKLOADS)
def test_rows_read_by_whole_vectors_are_right(name: str) -> None:
    workload = WORKLOADS[name]
    inputs = random_inputs(workload, seed=3)
    schedules = samples(workload, 6)
    assert schedules
    for schedule in schedules:
        got = interpreted(workload, schedule.program, [x.double() for x in inputs])
        for output, expected in zip(got, expect(workload, inputs), strict=True):
            assert error_ratio(torch.from_numpy(output), expected) <= 1, str(schedule)


@pytest.mark.parametrize("name", WORKLOADS)
def test_printed_triton_is_right(triton_interpreter, name: str) -> None:
    workload, backend = WORKLOADS[name], TritonBackend()
    inputs = random_inputs(workload, seed=4)
    for schedule in samples(workload, 2):
        got = triton_interpreter.computed(
            backend.render(schedule.program, "", H200), workload, schedule.program, inputs
        )
        for output, expected in zip(got, expect(workload, inputs), strict=True):
            assert error_ratio(torch.from_numpy(output), expected) <= 1, str(schedule)


def printed(workload: Workload, kind: str, **allowed) -> str:
    space = of_kind(best_spaces.build(workload, H200), kind, aligned=(True,), **allowed)
    return TritonBackend().render(space.sample(np.random.default_rng(0)).program, "", H200)


def test_iterations_within_a_row_are_not_masked() -> None:
    source = printed(WORKLOADS["sum of long rows"], "streamed", columns=((5, 1024),), accumulate=("point",))
    (loop,) = re.findall(r"tl.load\(in0_ptr \+ \(offs_r\[:, None\] \* 5001\) // 4 \* 4 \+ offs_c\[None, :\]\)", source)
    assert "mask" not in loop


def test_what_does_not_end_with_a_vector_is_not_read_beyond_its_end() -> None:
    """The last row's last vector would be outside of the tensor, so elements are masked one by one."""
    whole, cut = (printed(ops.softmax(rows, 333, dtype="float16"), "resident") for rows in (16, 15))
    assert "mask=(offs_c[None, :] < end_c[:, None])" in whole
    assert "end_c" not in cut
    assert re.search(r"mask=.*in_c", cut)


def test_rows_that_begin_at_vectors_leave_no_choice() -> None:
    assert not aligned(ops.softmax(16, 336, dtype="float16"))


@pytest.mark.parametrize(("columns", "reason"), [(32763, "65536 elements; at most 32768"), (32761, None)])
def test_rows_whose_tile_is_too_long_with_what_lies_before_them_are_read_as_they_begin(
    columns: int, reason: str | None
) -> None:
    """Up to 7 elements of 16 bits lie before a row in its first vector."""
    space = best_spaces.build(ops.softmax(16, columns, dtype="float16"), H200)
    as_it_begins = of_kind(space, "resident", aligned=(False,)).sample(np.random.default_rng(0))
    by_vectors = space.bind(Schedule("reduction", {**as_it_begins.knobs, "aligned": True}))
    refused = space.why_illegal(by_vectors)
    assert refused is None if reason is None else reason in (refused or "")


def test_records_from_before_say_that_rows_are_read_as_they_begin() -> None:
    space = best_spaces.build(WORKLOADS["softmax"], H200)
    schedule = of_kind(space, "resident", aligned=(False,)).sample(np.random.default_rng(0))
    old = {name: value for name, value in schedule.knobs.items() if name != "aligned"}
    assert space.bind(Schedule("reduction", old)).program == schedule.program
