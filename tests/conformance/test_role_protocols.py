"""Every specialised program that schedules make: its producer and consumers get along, and compute what it says."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

from autosched.backends import spaces
from autosched.backends.cuda.hopper.plan import OFFERS
from autosched.backends.gpu.warps import WGMMA
from autosched.checking.random_inputs import random_inputs
from chained_workloads import Scores, attention, gradients
from fused_workloads import gated
from scheduled_tensors import taken
from search_spaces import Schedule, Workload, ops, target_named
from search_spaces.programs.interpreting.interpreter import interpret
from search_spaces.programs.interpreting.roles import RunRoles, why_unsound
from search_spaces.programs.roles.making import roles_of
from search_spaces.programs.roles.statements import (
    Acquire,
    Advance,
    Await,
    Copy,
    Give,
    Nested,
    Part,
    Release,
    Ring,
    Role,
    Roles,
    RoleStatement,
    Settle,
    nested,
)
from search_spaces.programs.statements import For, statements
from search_spaces.programs.tile_program import Kernel
from search_spaces.schedules.limits import USUAL

H200 = target_named("h200")
WORKLOADS = {
    "product": ops.matmul(1024, 1024, 512, dtype="bfloat16", layout="nt"),
    "rows through registers": ops.matmul(512, 512, 512, dtype="tf32", layout="tt"),
    "partial sums": ops.matmul(512, 512, 512, dtype="float8_e4m3fn", layout="nt"),
    "scaled by blocks": ops.matmul(512, 512, 512, dtype="float8_e4m3fn", layout="nt", group=128, block=128),
    "epilogue that reads": ops.matmul(1024, 1024, 200, dtype="float16", layout="nt", epilogue="bias_gelu_residual"),
    "several dots": gated(512, 1024, 512, layout="t"),
    "rows of segments": ops.grouped_matmul(5, 1024, 512, 192),
    "attention": attention(2, 512, 512, 64),
    "causal attention": attention(2, 512, 512, 64, scores=Scores(causal=True)),
    "gradients": gradients(2, 256, 256, 64),
}
# Schedules of a space that are looked at beside its starts, and those that are computed.
SAMPLED, COMPUTED = 12, 4


@functools.cache
def specialized(workload: Workload) -> tuple[tuple[Schedule, Kernel], ...]:
    """The kernels with a producer of the starts of a space, and of some of its other schedules."""
    space, rng = spaces.build(workload, H200), np.random.default_rng(0)
    schedules = dict.fromkeys([*space.seeds(), *(space.sample(rng) for _ in range(SAMPLED))])
    return tuple((s, k) for s in schedules for k in s.program.kernels if k.launch.producer_warps)


def roles(schedule: Schedule, kernel: Kernel) -> Roles:
    return roles_of(kernel, WGMMA, OFFERS if schedule.backend == "cuda" else USUAL)


@pytest.mark.parametrize("name", WORKLOADS)
def test_no_slot_is_read_before_it_is_filled_or_filled_before_it_is_released(name: str) -> None:
    rng, found = np.random.default_rng(1), specialized(WORKLOADS[name])
    assert found
    for schedule, kernel in found:
        assert why_unsound(roles(schedule, kernel), rng) is None, schedule.one_line


# Of a few tiles each, so that the interpreter takes seconds.
SMALL = {
    "product": ops.matmul(256, 256, 192, dtype="bfloat16", layout="nt"),
    "rows through registers": ops.matmul(256, 128, 96, dtype="tf32", layout="tt"),
    "partial sums": ops.matmul(256, 128, 256, dtype="float8_e4m3fn", layout="nt"),
    "scaled by blocks": ops.matmul(256, 256, 384, dtype="float8_e4m3fn", layout="nt", group=128, block=128),
    "scaled by rows and columns": ops.matmul(200, 256, 256, dtype="float8_e4m3fn", layout="nt", group=64),
    "uneven": ops.matmul(200, 328, 72, dtype="float16", layout="nt"),
    "epilogue that reads": ops.matmul(256, 256, 72, dtype="float16", layout="nt", epilogue="bias_gelu_residual"),
    "several dots": gated(256, 256, 96, layout="t"),
    "rows of segments": ops.grouped_matmul(3, 300, 128, 72),
    "attention": attention(2, 256, 256, 64),
    "causal attention": attention(1, 256, 200, 64, scores=Scores(causal=True)),
    "gradients": gradients(1, 128, 128, 64),
}


@pytest.mark.parametrize("name", SMALL)
def test_roles_compute_what_the_program_says(name: str) -> None:
    workload, rng = SMALL[name], np.random.default_rng(1)
    inputs = [x.float().numpy() for x in random_inputs(workload, seed=0)]
    schedules = [*dict.fromkeys(s for s, _ in specialized(workload))]
    for schedule in schedules[:: max(1, len(schedules) // COMPUTED)]:
        by_roles = RunRoles(functools.partial(roles_or_none, schedule), rng)
        given = taken(workload, schedule.program, inputs)
        for got, want in zip(
            interpret(schedule.program, given, by_roles), interpret(schedule.program, given), strict=True
        ):
            # Sums of parts of a tile may be added up in another order, and then be rounded to the next number.
            np.testing.assert_allclose(got, want, rtol=2**-6, atol=2**-9, err_msg=schedule.one_line)


def roles_or_none(schedule: Schedule, kernel: Kernel) -> Roles | None:
    return roles(schedule, kernel) if kernel.launch.producer_warps else None


def contended(kernel: Kernel) -> Kernel:
    """The kernel with two slots a ring, and programs that have four tiles each: slots are filled again and again."""
    body = tuple(replace(s, pipeline_stages=2) if isinstance(s, For) else s for s in kernel.body)
    return replace(kernel, body=body, grid=replace(kernel.grid, persistent=kernel.grid.tiles // 4))


@dataclass(frozen=True)
class Changed:
    """Roles as they are written down here."""

    kernel: Kernel
    rings: tuple[Ring, ...]
    groups: int
    parts: tuple[Part, ...]
    producer: Role
    consumer: Role

    def without(self, left_out: RoleStatement) -> Changed:
        producer, consumer = (_without(role, left_out) for role in (self.producer, self.consumer))
        return replace(self, producer=producer, consumer=consumer)


def _without(role: Role, left_out: RoleStatement) -> Role:
    def changed(body: tuple[RoleStatement, ...]) -> Iterator[RoleStatement]:
        for s in body:
            if isinstance(s, Nested):
                yield replace(s, body=tuple(changed(s.body)))
            elif s is not left_out:
                yield s

    return replace(role, body=tuple(changed(role.body)))


def looping(workload: Workload, kind: str) -> tuple[Schedule, Kernel]:
    """A specialised kernel whose main loop has several iterations, so that slots are filled again."""
    space, rng = spaces.build(workload, H200), np.random.default_rng(0)
    part = space.restricted(space.sketches[0].name, specialize=[kind])
    drawn = ((s, k) for s in iter(lambda: part.sample(rng), None) for k in s.program.kernels if k.launch.producer_warps)
    return next((s, k) for s, k in drawn if any(x.extent > 1 for x in statements(k.body) if isinstance(x, For)))


@pytest.mark.parametrize("name", ["product", "rows through registers", "several dots", "attention"])
@pytest.mark.parametrize("kind", ["cooperative", "pingpong"])
def test_a_protocol_without_one_of_its_statements_is_unsound(name: str, kind: str) -> None:
    """The simulation finds a slot that is never released, dots that nobody waits for, a turn that is never given."""
    schedule, kernel = looping(WORKLOADS[name], kind)
    made = roles(schedule, contended(kernel))
    written = Changed(made.kernel, made.rings, made.groups, made.parts, made.producer, made.consumer)
    assert why_unsound(written, np.random.default_rng(2)) is None
    needed = Acquire | Copy | Await | Release | Advance | Settle | Give
    every = [s for role in (written.producer, written.consumer) for s in nested(role.body) if isinstance(s, needed)]
    rest = [s for s in every if why_unsound(written.without(s), np.random.default_rng(2), orders=8) is None]
    assert rest == []
