"""Convolutions of every kind on every backend: any schedule of the whole space computes them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from autosched import backends, trace
from autosched.backends import spaces
from autosched.backends.build import build
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from autosched.checking.trial_data import TrialData
from autosched.machine.devices import cpu_target
from convolutions import block, convolution, weights_gradient
from cuda_on_cpu import EmulatedProgram
from pairwise import pairwise
from schedule_checks import fault
from scheduled_tensors import interpreted
from search_spaces import Schedule, SearchSpace, Workload, target_named

CPU, H200, A100 = cpu_target(), target_named("h200"), target_named("a100")
KINDS: Mapping[str, tuple[Any, ...]] = {
    "rank": (1, 2, 3),
    "size": (1, 5, 6),
    "taps": (1, 2, 3, 5),
    "stride": (1, 2, 3),
    "padding": (0, 1, 3),
    "dilation": (1, 2),
    "groups": (1, 2, "each"),
    "layout": ("nhwc", "nchw"),
    "batch": (1, 3),
    "dtype": ("float16", "bfloat16", "float32"),
}


# An interpreter takes seconds for more multiplications.
MOST_PRODUCTS = 20_000


def is_defined(kind: Mapping[str, Any]) -> bool:
    """True for what has positions, and not too many of them."""
    reach = (kind["taps"] - 1) * kind["dilation"]
    positions = (kind["size"] + 2 * kind["padding"] - reach + kind["stride"] - 1) // kind["stride"]
    channels = {1: 45, 2: 102, "each": 7}[kind["groups"]]
    products = (positions * kind["taps"]) ** kind["rank"] * channels * kind["batch"]
    return bool(positions > 0 and products <= MOST_PRODUCTS)


COMBINATIONS = pairwise(KINDS, is_defined)


def name_of(kind: Mapping[str, Any]) -> str:
    return "-".join(f"{n}={v}" for n, v in kind.items())


def made(kind: Mapping[str, Any]) -> Workload:
    """The convolution of that kind: of odd numbers of channels, and more columns than rows."""
    rank, (groups, inner, filters) = kind["rank"], {1: (1, 5, 9), 2: (2, 17, 3), "each": (7, 1, 1)}[kind["groups"]]
    size = [kind["size"]] * (rank - 1) + [kind["size"] + 2]
    given = {n: kind[n] for n in ("batch", "stride", "dilation", "padding", "layout", "dtype")}
    return convolution(size, [kind["taps"]] * rank, groups * inner, groups * filters, groups=groups, **given)


WORKLOADS = {name_of(kind): made(kind) for kind in COMBINATIONS} | {
    "weights": weights_gradient(2, 5, 7, 9, stride=2),
    "block": block(convolution((5, 7), (3, 3), 5, 9, padding=1), activated=True),
    "block of filled": block(convolution((5, 7), (3, 3), 5, 9, padding=1, groups=1), fill=2.0),
}
every = pytest.mark.parametrize("name", WORKLOADS)
# Every third, for what takes seconds.
SOME = [*WORKLOADS][::3]
some = pytest.mark.parametrize("name", SOME)
# Triton's interpreter computes bfloat16 wrongly.
without_bfloat16 = pytest.mark.parametrize(
    "name", [name for name in SOME if all(t.dtype != "bfloat16" for t in WORKLOADS[name].inputs)]
)


@lru_cache
def space_of(name: str, target: str, backend: str) -> SearchSpace:
    device = CPU if target == "cpu" else target_named(target)
    return spaces.build(WORKLOADS[name], device, [backends.named(backend)])


def drawn(space: SearchSpace, count: int, seed: int = 0) -> Iterator[Schedule]:
    """A starting point and so many others, of which the first are of sketches of their own."""
    rng = np.random.default_rng(seed)
    each = [space.restricted(sketch.name).sample(rng) for sketch in space.sketches]
    return iter(dict.fromkeys([*itertools.islice(space.seeds(), 1), *each, *(space.sample(rng) for _ in range(count))]))


def check(workload: Workload, results: Any, inputs: Any, schedule: Schedule) -> None:
    for value, expected in zip(results, expect(workload, inputs), strict=True):
        assert error_ratio(torch.from_numpy(value), expected) <= 1, str(schedule)


@every
@pytest.mark.parametrize(("target", "backend"), [("h200", "triton"), ("cpu", "llvm")], ids=str)
def test_programs_compute_convolutions(name: str, target: str, backend: str) -> None:
    workload = WORKLOADS[name]
    inputs = random_inputs(workload, seed=3)
    for schedule in drawn(space_of(name, target, backend), 0):
        result = interpreted(workload, schedule.program, [x.double() for x in inputs])
        check(workload, result, inputs, schedule)


@every
def test_machine_code_computes_convolutions(name: str) -> None:
    data = TrialData.drawn(WORKLOADS[name], 0, torch.device("cpu"))
    for schedule in drawn(space_of(name, "cpu", "llvm"), 1):
        assert not fault(schedule, data)


@without_bfloat16
def test_printed_triton_computes_convolutions(triton_interpreter: Any, name: str) -> None:
    workload = WORKLOADS[name]
    inputs, backend = random_inputs(workload, seed=3), backends.named("triton")
    # Those of few programs first: each takes the interpreter milliseconds.
    schedule = min(drawn(space_of(name, "h200", "triton"), 6), key=programs_of)
    text = backend.render(schedule.program, schedule.one_line, H200)
    check(workload, triton_interpreter.computed(text, workload, schedule.program, inputs), inputs, schedule)


def programs_of(schedule: Schedule) -> int:
    return sum(kernel.grid.programs for kernel in schedule.program.kernels)


@some
def test_printed_cuda_computes_convolutions(name: str, tmp_path: Path) -> None:
    data = TrialData.drawn(WORKLOADS[name], 0, torch.device("cpu"))
    schedule = space_of(name, "a100", "cuda").sample(np.random.default_rng(0))
    data.poison()
    EmulatedProgram(schedule.program, A100, tmp_path)(data.operands)
    data.judge()


@pytest.mark.parametrize(
    ("name", "target", "backend"),
    [
        (name, target, backend)
        for n, (target, backend) in enumerate(
            [("h200", "triton"), ("a100", "triton"), ("h200", "cuda"), ("a100", "cuda")]
        )
        for name in [*WORKLOADS][n::14]
    ],
    ids=str,
)
def test_kernels_of_convolutions_compile(name: str, target: str, backend: str) -> None:
    device, maker = target_named(target), backends.named(backend)
    schedule = space_of(name, target, backend).sample(np.random.default_rng(1))
    assert build(schedule.program, schedule.one_line, device, maker).binaries


@pytest.mark.parametrize("rank", [2, 3])
def test_weights_of_many_dimensions_are_prepared_for_descriptors(rank: int) -> None:
    """Weights of a transposed convolution: two dimensions for each of an image, where descriptors have five in all."""
    layer = (torch.nn.ConvTranspose2d, torch.nn.ConvTranspose3d)[rank - 2](32, 40, 4, stride=2, padding=1)
    workload, *_ = trace(layer, torch.empty(1, 32, *(4, 3, 5)[:rank])).for_target(H200).workloads
    space = spaces.build(workload, H200, [backends.named("cuda")])
    found: dict[Any, Schedule] = {}
    for schedule in space.seeds():
        if schedule.knobs["b_load"] == "prepared_k":
            found.setdefault((schedule.knobs["a_load"], schedule.knobs["specialize"]), schedule)
    assert ("im2col", "cooperative") in found
    inputs = random_inputs(workload, seed=3)
    for schedule in found.values():
        check(workload, interpreted(workload, schedule.program, [x.double() for x in inputs]), inputs, schedule)
        build(schedule.program, "transposed", H200, backends.named("cuda"))
