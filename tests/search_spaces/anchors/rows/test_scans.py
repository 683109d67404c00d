"""Scans: what their workloads are, and that every backend computes them as the sketches say."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

import best_spaces
from autosched.backends.llvm.backend import LlvmBackend
from autosched.backends.triton.backend import TritonBackend
from autosched.checking import random_inputs, reference, scanned
from autosched.checking.correctness import error_ratio, expect
from autosched.machine import devices
from autosched.standalone import references
from cost_models.program_counts import count
from row_kinds import KINDS, first_start, kind_of, of_kind, parts
from scanned_workloads import LONG, SCANS, counted, left, recurrence, renamed, right, running, running_place, scan
from scheduled_tensors import interpreted, launched_on
from search_spaces import InputError, Schedule, Workload
from search_spaces.devices.target import GPUS, cpu
from search_spaces.programs.statements import Map, Scan, Statement, statements
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.walking import accesses
from structured_workloads import Build

H200 = GPUS["h200"]
TRITON = TritonBackend()


def sampled(workload: Workload, kind: str, count: int) -> list[Schedule]:
    only = of_kind(best_spaces.build(workload, H200), kind)
    return [only.sample(np.random.default_rng(seed)) for seed in range(count)]


def kinds(workload: Workload) -> tuple[str, ...]:
    return tuple(kind_of(part.sample(np.random.default_rng(0))) for part in parts(best_spaces.build(workload, H200)))


HERE = devices.cpu_target()
LLVM = LlvmBackend()


@pytest.mark.parametrize("workload", [running(2, 5), counted(2, 5)])
def test_references_of_running_sums_are_one_call_of_pytorch(workload: Workload) -> None:
    """And not as many steps as doubling takes, each of which copies the tensor."""
    (last,) = (s.scan for s in workload.stages if s.scan)
    assert scanned.running(last) is torch.cumsum


@pytest.mark.parametrize("workload", SCANS, ids=lambda w: w.label)
def test_kernels_of_a_cpu_compute_scans(workload: Workload) -> None:
    inputs = random_inputs.random_inputs(workload, seed=3)
    space = best_spaces.build(workload, HERE)
    for seed in range(2):
        schedule = space.sample(np.random.default_rng(seed))
        program = schedule.program
        made = [random_inputs.empty(t, "cpu") for t in workload.outputs]
        launcher = LLVM.load(LLVM.compile(LLVM.render(program, "", HERE), program, HERE), program)
        launcher(launched_on(workload, inputs, *made))
        for output, expected in zip(made, expect(workload, inputs), strict=True):
            assert error_ratio(output, expected) <= 1, str(schedule)


CASES = [pytest.param(w, sketch, id=f"{w.label}-{sketch}") for w in (*SCANS, *LONG) for sketch in kinds(w)]


@pytest.mark.parametrize(("workload", "sketch"), CASES)
def test_every_sketch_computes_scans(workload: Workload, sketch: str) -> None:
    inputs = random_inputs.random_inputs(workload, seed=3)
    for schedule in sampled(workload, sketch, 2):
        got = interpreted(workload, schedule.program, [x.double() for x in inputs])
        for output, expected in zip(got, expect(workload, inputs), strict=True):
            assert error_ratio(torch.from_numpy(output), expected) <= 1, str(schedule)


SMALL = (
    running(3, 37),
    running(40, 9, "max", along="r"),
    recurrence(3, 70, reverse=True),
    running_place(3, 20),
    counted(2, 33),
    running(1, 2050),
)


@pytest.mark.parametrize("workload", SMALL, ids=lambda w: w.label)
def test_triton_computes_scans_as_the_interpreter_does(workload: Workload, triton_interpreter) -> None:
    inputs = random_inputs.random_inputs(workload, seed=3)
    for schedule in (s for sketch in kinds(workload) for s in sampled(workload, sketch, 1)):
        got = triton_interpreter.computed(TRITON.render(schedule.program, "", H200), workload, schedule.program, inputs)
        for mine, wanted in zip(got, interpreted(workload, schedule.program, inputs), strict=True):
            np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-5, err_msg=str(schedule))


@pytest.mark.parametrize(
    "workload", [running(8, 100), recurrence(64, 64, along="r"), recurrence(2, 2500)], ids=lambda w: w.label
)
def test_scans_compile_without_a_gpu(workload: Workload) -> None:
    for sketch in kinds(workload):
        (schedule,) = sampled(workload, sketch, 1)
        TRITON.compile(TRITON.render(schedule.program, "", H200), schedule.program, H200)


def test_running_sums_are_those_of_numpy() -> None:
    x = torch.randn(3, 50)
    for reverse in (False, True):
        (got,) = reference.evaluate(running(3, 50, reverse=reverse), [x])
        wanted = x.double().flip(1).cumsum(1).flip(1) if reverse else x.double().cumsum(1)
        torch.testing.assert_close(got, wanted)


def test_the_place_of_a_running_maximum_is_that_of_pytorch() -> None:
    x = torch.randint(-3, 4, (3, 50)).float()
    got = reference.evaluate(running_place(3, 50), [x])
    for mine, wanted in zip(got, torch.cummax(x, 1), strict=True):
        assert torch.equal(mine.to(wanted.dtype), wanted)


@pytest.mark.parametrize("workload", SCANS, ids=lambda w: w.label)
def test_scans_are_read_from_json(workload: Workload) -> None:
    assert Workload.from_json(workload.to_json()) == workload


def test_what_scans_are_called_is_not_in_their_key() -> None:
    names = {"a": "gate", "h": "left", "u": "right", "x": "h"}
    assert renamed(recurrence(4, 8), names).key == recurrence(4, 8).key


def _exchanged(workload: Workload) -> Workload:
    """The recurrence with its values, and the arguments of its sums and products, in the other order."""
    combine = (ex.add(right(0), ex.mul(right(1), left(0))), ex.mul(right(1), left(1)))
    make = Build(r=4, c=8)
    u, x = (make.input(t.name, "rc") for t in workload.inputs)
    gate = workload.stages[0].expression
    assert accesses(gate) == (u,)
    scan(make, "ha", "rc", "c", [x, gate], combine)
    return make.workload("exchanged", h="float32")


def test_the_order_of_values_is_not_in_the_key_of_a_scan() -> None:
    assert _exchanged(recurrence(4, 8)).key == recurrence(4, 8).key


def test_scans_of_different_directions_axes_and_combinations_have_different_keys() -> None:
    keys = {
        w.key
        for w in (
            running(8, 8),
            running(8, 8, reverse=True),
            running(8, 8, along="r"),
            running(8, 8, "max"),
            recurrence(8, 8),
        )
    }
    assert len(keys) == 5


def test_a_combination_reads_nothing_but_its_own_values() -> None:
    with pytest.raises(InputError, match="expected its own values"):
        scan(Build(r=2, c=2), "y", "rc", "c", [left()], [ex.add(left(0), right(1))])


def test_a_row_in_one_tile_is_scanned_at_once() -> None:
    (schedule,) = sampled(running(8, 100), "resident", 1)
    scans = [s for k in schedule.program.kernels for s in statements(k.body) if isinstance(s, Scan)]
    assert [s.axis for s in scans] == ["c"]


@pytest.mark.parametrize("workload", SCANS, ids=lambda w: w.label)
def test_scans_are_printed_as_plain_pytorch(workload: Workload) -> None:
    inputs = [x.double() for x in random_inputs.random_inputs(workload, seed=3)]
    namespace: dict[str, object] = {"torch": torch, "math": math}
    exec("\n\n".join([*references.HELPERS.values(), references.reference("plain", workload)]), namespace)
    plain = namespace["plain"]
    assert callable(plain)
    made = plain(*inputs)
    results = made if isinstance(made, tuple) else (made,)
    for got, wanted in zip(results, reference.evaluate(workload, inputs), strict=True):
        torch.testing.assert_close(got.to(wanted.dtype), wanted)


def test_combinations_are_counted_as_operations_for_every_step_of_a_tile() -> None:
    (schedule,) = sampled(recurrence(8, 128), "resident", 1)
    (scan,) = [s for k in schedule.program.kernels for s in statements(k.body) if isinstance(s, Scan)]
    without = dataclasses.replace(
        schedule.program.kernels[0], body=tuple(_without_scan(schedule.program.kernels[0].body))
    )
    program = dataclasses.replace(schedule.program, kernels=(without,))
    (whole,), (rest,) = count(schedule.program), count(program)
    elements = scan.dsts[0].elements
    # Halving 128 columns takes 7 steps, of two products and a sum each.
    assert whole.map_flops - rest.map_flops == pytest.approx(elements * 7 * 3 - 2 * elements)


def _without_scan(body: tuple[Statement, ...]) -> Iterator[Statement]:
    for statement in body:
        if isinstance(statement, Scan):
            yield from (Map(d, "abs", (s,)) for d, s in zip(statement.dsts, statement.srcs, strict=True))
        else:
            yield statement


@pytest.mark.parametrize("kind", KINDS)
def test_scan_for_triton(kind: str, check_golden: Callable[[str, str], None]) -> None:
    found = first_start(best_spaces.build(recurrence(2, 4096), H200), kind)
    check_golden("triton", TRITON.render(found.program, kind, H200))


def test_scan_for_a_cpu(check_golden: Callable[[str, str], None]) -> None:
    plain = cpu("a CPU", lanes=4, threads=1, l1_bytes=32768, l2_bytes=2**20, fp32_flops=1e11)
    schedule = next(s for s in best_spaces.build(recurrence(8, 24), plain) if s.knobs["vectors"] == 2)
    check_golden("llvm", LLVM.render(schedule.program, schedule.one_line, HERE))
