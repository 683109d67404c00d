"""Search spaces of several backends: each has its own rules, known before anything is lowered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import search_spaces
from autosched.backends import spaces
from autosched.backends.cuda.limits import CudaLimits
from chained_workloads import attention
from fused_workloads import gated, prepared
from search_spaces import Target, Workload, ops, target_named
from search_spaces.schedules.limits import Offers

H200 = target_named("h200")


JOINT = [
    ops.matmul(4096, 4096, 4096, dtype="bfloat16", layout="nt"),
    attention(64, 2048, 2048, 128, "bfloat16"),
    ops.softmax(4096, 4096, dtype="bfloat16"),
]


@pytest.mark.parametrize("workload", JOINT, ids=lambda w: w.label)
def test_most_of_what_is_drawn_for_several_backends_is_legal(workload: Workload) -> None:
    """Draws of the product came upon two illegal candidates for each legal one where all backends had one's rules."""
    space, rng = spaces.build(workload, H200), np.random.default_rng(0)
    for _ in range(100):
        space.sample(rng)
    assert space.rejected <= 100


def test_tiles_that_one_backend_alone_makes_are_drawn_for_no_other() -> None:
    space, rng = spaces.build(JOINT[0], H200), np.random.default_rng(0)
    drawn = [space.sample(rng) for _ in range(60)]
    odd = {s.backend for s in drawn if any(s.knobs.tile(x) & (s.knobs.tile(x) - 1) for x in "mn")}
    assert odd == {"cuda"}


def test_knobs_give_way_where_another_backend_could_not_have_them() -> None:
    space, rng = spaces.build(JOINT[0], H200), np.random.default_rng(0)
    drawn = (space.sample(rng) for _ in range(100))
    odd = (s for s in drawn if s.backend == "cuda" and {96, 160, 192} & {s.knobs.tile("m"), s.knobs.tile("n")})
    made, other = next((s, near) for s in odd for near in space.neighbours(s) if near.backend == "triton")
    assert space.why_illegal(other) is None
    assert (other.knobs["order"], other.knobs["k"]) == (made.knobs["order"], made.knobs["k"])
    child = space.crossover(other, made, rng)
    assert (child.backend, space.why_illegal(child)) == ("triton", None)


class _Independent(CudaLimits):
    """The same limits, none of which is known before a schedule is lowered."""

    def offers(self, target: Target) -> Offers:
        found = super().offers(target)
        return replace(found, dot_registers=0, waits=False, walks=True, kept_registers=0)


@pytest.mark.parametrize("target", ["h200", "a100", "v100"])
@pytest.mark.parametrize(
    "workload",
    [
        ops.matmul(1000, 1000, 3000, dtype="float16", epilogue="bias_gelu"),
        ops.matmul(2048, 2048, 64, dtype="float16"),
        ops.matmul(3000, 5000, 1280, layout="tn"),
        ops.matmul(512, 333, 512, dtype="float16"),
        gated(2048, 14336, 4096, "float16", layout="t"),
        prepared(2048, 4096, 4096, "float16", prologue="normalised"),
        attention(16, 1024, 1024, 64),
        attention(16, 8, 4096, 128),
    ],
    ids=lambda w: w.label,
)
def test_rules_refuse_nothing_that_cuda_makes(workload: Workload, target: str) -> None:
    device, rng = target_named(target), np.random.default_rng(0)
    known = search_spaces.build(workload, device, {"cuda": CudaLimits()})
    independent = search_spaces.build(workload, device, {"cuda": _Independent()})
    drawn = [independent.sample(rng) for _ in range(15)]
    assert {known.why_illegal(known.bind(s)) for s in drawn} == {None}
