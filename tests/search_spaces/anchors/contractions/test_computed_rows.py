"""Products with a producer whose rows groups of warps compute in registers: roles, rules, texts and results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from autosched import backends
from autosched.backends import spaces
from autosched.backends.build import build
from autosched.backends.cuda.hopper.plan import OFFERS
from autosched.backends.gpu.warps import WGMMA
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from autosched.checking.trial_data import Division, TrialData
from autosched.machine import devices
from fused_workloads import prepared
from machine_code import machine_code
from needed import needs_hopper
from schedule_checks import fault
from scheduled_tensors import given_back, taken
from search_spaces import (
    Axis,
    Reduction,
    Schedule,
    SearchSpace,
    Stage,
    Target,
    Tensor,
    Workload,
    ops,
    target_named,
)
from search_spaces.errors import UnmatchedError
from search_spaces.programs.interpreting.interpreter import interpret
from search_spaces.programs.interpreting.roles import RunRoles, why_unsound
from search_spaces.programs.roles.legality import check_product
from search_spaces.programs.roles.making import roles_of
from search_spaces.programs.roles.products import ProductRoles
from search_spaces.programs.roles.statements import Await, Issue, Keep, Release, Settle, Steps, nested
from search_spaces.programs.statements import For, Interleave, Load, Map, Statement
from search_spaces.programs.tile_program import Kernel
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access

H200, CUDA = target_named("h200"), backends.named("cuda")
KINDS = ["cooperative", "pingpong"]


def product(m: int = 96, n: int = 192, k: int = 256, **options: Any) -> Workload:
    return ops.matmul(m, n, k, **{"dtype": "bfloat16", "layout": "nt", "constant": "b", **options})


def scaled_by(dtype: str) -> Workload:
    """out[m, n] = sum over k of x[m, k] * (q[n, k] * s[n], rounded), with scales of any type."""
    m, n, k = Axis("m", 96), Axis("n", 192), Axis("k", 256)
    x, q, s = (Access(name, tuple(map(axis_index, axes))) for name, axes in (("x", "mk"), ("q", "nk"), ("s", "n")))
    inputs = Tensor("x", (96, 256), "bfloat16"), Tensor("q", (192, 256), "int8"), Tensor("s", (192,), dtype)
    product = ex.mul(x, ex.call("round_bfloat16", ex.mul(q, s)))
    return Workload("scaled", inputs, (Stage("out", (m, n), product, Reduction("sum", (k,)), "bfloat16"),))


WORKLOADS = {
    "int8": product(b_dtype="int8"),
    "int8, groups": product(b_dtype="int8", group=64, dtype="float16", epilogue="bias_silu"),
    "zero points": product(b_dtype="int8", group=128, zero_points=True),
    "float8": product(b_dtype="float8_e4m3fn", group=128),
    "exponents": product(b_dtype="float8_e5m2", group=32, scale_dtype="float8_e8m0fnu"),
    "int4": product(b_dtype="int4", group=64),
    "int4 with zero points": product(m=200, b_dtype="int4", group=128, zero_points=True),
    "a batch": product(b_dtype="int4", group=128, batch=2),
    "scales of float32": scaled_by("float32"),
    "beyond the end of k": product(k=208, b_dtype="int8"),
    "bytes beyond the end of k": product(k=416, b_dtype="int4"),
    "rows of the left": prepared(192, 96, 256, prologue="relu_scale"),
}
every = pytest.mark.parametrize("name", WORKLOADS)


def space_of(workload: Workload, target: Target = H200, **allowed: Any) -> SearchSpace:
    whole = spaces.build(workload, target, [CUDA])
    return whole.restricted("contraction", **{"specialize": KINDS, **allowed})


def drawn(name: str, seed: int, target: Target = H200, **allowed: Any) -> Schedule:
    return space_of(WORKLOADS[name], target, **allowed).sample(np.random.default_rng(seed))


def kernel_of(schedule: Schedule) -> Kernel:
    return next(k for k in schedule.program.kernels if k.launch.producer_warps)


def roles_in(kernel: Kernel) -> ProductRoles | None:
    found = roles_of(kernel, WGMMA, OFFERS) if kernel.launch.producer_warps else None
    assert found is None or isinstance(found, ProductRoles)
    return found


@every
def test_roles_compute_the_product(name: str) -> None:
    workload, rng = WORKLOADS[name], np.random.default_rng(0)
    inputs = random_inputs(workload, seed=3)
    # Few units: persistent programs have several tiles.
    schedule = drawn(name, 0, replace(H200, num_sms=2))
    given = taken(workload, schedule.program, [x.double() for x in inputs])
    results = interpret(schedule.program, given, RunRoles(roles_in, rng))
    (out,) = given_back(workload, schedule.program, results)
    assert error_ratio(torch.from_numpy(np.ascontiguousarray(out)), expect(workload, inputs)[0]) <= 1
    roles = roles_in(kernel_of(schedule))
    assert roles is not None
    assert why_unsound(roles, rng) is None


def test_dots_are_settled_before_the_rows_in_their_registers_change() -> None:
    roles = roles_in(kernel_of(drawn("int4", 0)))
    assert roles is not None
    steps = next(s for s in nested(roles.consumer.body) if isinstance(s, Steps))
    kinds = [type(s) for s in steps.body]
    order = [kinds.index(x) for x in (Load, Await, Map, Interleave, Keep, Issue, Settle, Release)]
    assert order == sorted(order)


@pytest.mark.parametrize("name", ["int4 with zero points", "rows of the left"])
def test_legal_schedules_compile(name: str) -> None:
    """Whatever the sizes, nothing is spilled, and dots take rows from registers."""
    schedule = drawn(name, 1)
    assert build(schedule.program, "", H200, CUDA).facts.spill_bytes == 0
    assert "_rk(" in CUDA.render(schedule.program, "", H200)


def test_bytes_become_pairs_by_their_bits(tmp_path: Path) -> None:
    """Two instructions and a scale for each pair, and none that converts one number after the other."""
    schedule = drawn("int4", 0, m=[(1, 96)], n=[(1, 192)], warps=[12], ctas=[1], split=[1])
    code = "\n".join(machine_code(build(schedule.program, "", H200, CUDA).binaries[0], tmp_path))
    pairs = 64 * 64 // 128 // 2
    assert (code.count("HMUL2"), code.count("HFMA2"), code.count("HGMMA")) == (pairs, pairs, 4)
    assert "I2F" not in code


def until_settled(code: list[str], first: int) -> Iterator[str]:
    """The instructions from a line on, until dots are settled; of a loop's end those at its beginning, too."""
    labels = {line.partition(":")[0]: n for n, line in enumerate(code) if line.startswith(".L")}
    for number, line in enumerate(code[first:], first):
        if "DEPBAR" in line:
            return
        yield line
        back = re.search(r"BRA.*`\((\.L\w+)\)", line)
        if back and labels[back[1]] < number:
            yield from until_settled(code, labels[back[1]])


@pytest.mark.parametrize("name", ["int4", "int8"])
def test_no_register_of_rows_changes_while_dots_read_it(name: str, tmp_path: Path) -> None:
    """Ptxas takes the registers of dots in flight for free: seen on an H200 where others were computed meanwhile."""
    schedule = drawn(name, 0, m=[(1, 96)], n=[(1, 128), (2, 128)], warps=[8], ctas=[1], split=[1])
    code = machine_code(build(schedule.program, "", H200, CUDA).binaries[0], tmp_path)
    dots = [(n, int(dot[1])) for n, line in enumerate(code) if (dot := re.search(r"HGMMA\S* R\d+, R(\d+)", line))]
    assert dots
    for number, first in dots:
        for line in until_settled(code, number + 1):
            if "GMMA" not in line and (to := re.search(r"\*/\s+(?:@!?U?P\d+ )?[A-Z]\S* R(\d+)", line)):
                wide = 4 if ".128" in line else 2 if ".64" in line or "WIDE" in line else 1
                assert not {*range(first, first + 4)} & {int(to[1]) + n for n in range(wide)}, line


@pytest.mark.parametrize(("scale", "by_bits"), [("float32", False), ("bfloat16", True)])
def test_scales_of_another_type_are_multiplied_in_float32(scale: str, by_bits: bool) -> None:
    """A pair of bfloat16 has no factor of float32."""
    schedule = space_of(scaled_by(scale)).sample(np.random.default_rng(0))
    assert ("scaled_bfloat16(" in CUDA.render(schedule.program, "", H200)) == by_bits


def refusal(change: Callable[[Statement], Statement], name: str = "int8", **limits: Any) -> str:
    """Reason that there are no roles, once the statements of the main loop have changed."""
    kernel = kernel_of(drawn(name, 0))
    body = tuple(replace(s, body=tuple(map(change, s.body))) if isinstance(s, For) else s for s in kernel.body)
    with pytest.raises(UnmatchedError) as why:
        check_product(ProductRoles.of(replace(kernel, body=body), WGMMA), replace(OFFERS, **limits))
    return str(why.value)


def test_backends_without_such_dots_refuse_them() -> None:
    assert "its dots multiply what is computed; expected what is loaded" in refusal(lambda s: s, computes=False)
    whole = spaces.build(WORKLOADS["int8"], H200, [backends.named("triton")])
    knob = next(k for x in whole.sketches if x.name == "contraction" for k in x.knobs if k.name == "specialize")
    assert list(knob.values) == ["none"]


def test_rows_of_another_type_than_the_columns_are_refused() -> None:
    def wide(s: Statement) -> Statement:
        cast = isinstance(s, Map) and s.operator == "cast"
        return replace(s, dst=replace(s.dst, dtype="float16")) if cast and isinstance(s, Map) else s

    assert "operands are bfloat16 and float16; expected equal types" in refusal(wide)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"swap": False}, "rows of warp groups are computed, not columns; expected swap=True"),
        ({"k_axes": "unrolled"}, "k_axes=interleaved is for operands that a producer loads, and these need it"),
        ({"specialize": "none", "warps": 8}, "k_axes=interleaved is for operands that a producer loads"),
    ],
)
def test_illegal_schedules_are_refused_in_words(changes: dict[str, Any], reason: str) -> None:
    space = spaces.build(WORKLOADS["int4"], H200, [CUDA])
    schedule = drawn("int4", 0, n=[(2, 128)], m=[(2, 64)], k=[(1, 32)])
    values = tuple((name, changes.get(name, value)) for name, value in schedule.values)
    changed = space.bind(Schedule(schedule.sketch, values, backend="cuda"))
    assert reason in (space.why_illegal(changed) or "")


@pytest.mark.parametrize(
    ("workload", "grid"),
    [
        (product(64, 4096, 4096, b_dtype="int4", group=128), "tiles"),
        (product(2048, 4096, 4096, b_dtype="int8"), "persistent"),
    ],
)
def test_the_first_start_computes_rows_whether_they_are_few_or_many(workload: Workload, grid: str) -> None:
    first, *_ = spaces.build(workload, H200, [CUDA]).seeds()
    assert (first.knobs["specialize"], first.knobs["grid"]) == ("cooperative", grid)


@pytest.mark.gpu
@needs_hopper
@every
def test_kernels_are_right_on_a_gpu_whatever_the_scales(name: str) -> None:
    workload, target = WORKLOADS[name], devices.gpu_target()
    schedules = dict.fromkeys(drawn(name, seed, target) for seed in range(6))
    for factor in (1e-4, 1.0, 1e4) if workload.inputs[0].dtype == "bfloat16" else (1.0,):
        given = zip(workload.inputs, random_inputs(workload, 0, "cuda"), strict=True)
        inputs = [x * factor if "scale" in t.name and t.dtype == "bfloat16" else x for t, x in given]
        data = TrialData(workload, inputs, [Division({}, expect(workload, inputs))], [0] * (len(inputs) + 1))
        found = [why for schedule in schedules if (why := fault(schedule, data, target))]
        assert not found, "\n".join(found)
