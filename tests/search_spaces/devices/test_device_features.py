"""What devices can do is data: of listed GPUs, of records by later versions, and of a device that nobody has made."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from autosched import backends
from autosched.backends.backend import CompileError
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from autosched.machine.element_types import torch_dtype
from chained_workloads import attention
from fused_workloads import gated
from scheduled_tensors import interpreted
from search_spaces import (
    DataError,
    EmptySearchSpaceError,
    Schedule,
    SearchSpace,
    Target,
    TileProgram,
    Workload,
    build,
    ops,
    target_named,
)
from search_spaces.devices.features import Features, MatrixInstruction
from search_spaces.devices.target import GPUS
from search_spaces.programs.statements import Dot, Load, Store, produced, statements
from search_spaces.programs.tile_program import Kernel
from search_spaces.schedules.limits import USUAL, Distinguished, Limits, Offers, Resources

# Waves of 64, matrix instructions of their own on operands in registers; nothing else that a listed GPU has.
MADE_UP = dataclasses.replace(
    target_named("a100"),
    name="m1",
    device="A device that nobody has made",
    capability=0,
    num_sms=4,
    own=Features(wave=64, registers_per_thread=512, matrix=(MatrixInstruction(32, 32, 8, ("float16",)),)),
)
WORKLOADS = {
    "product": ops.matmul(96, 130, 72, dtype="float16", epilogue="bias"),
    "short": ops.matmul(17, 96, 64, dtype="float16", layout="nt"),
    "thin": ops.matmul(2, 256, 512, dtype="float16"),
    "float32": ops.matmul(64, 64, 64),
    "gated": gated(64, 64, 96),
    "attention": attention(2, 64, 96, 32),
    "softmax": ops.softmax(16, 300),
    "layernorm": ops.layernorm(16, 1024, dtype="float16"),
    "pointwise": ops.gelu_scale(4096, dtype="float16"),
}


class FewSums:
    """The limits of a backend that there is not: sums of all dots stay in registers, operands in shared memory."""

    def offers(self, target: Target) -> Offers:
        return USUAL

    def why_unsupported(self, workload: Workload, target: Target) -> str | None:
        lacking = [x for x in workload.contracted if not target.features.multiplying(x)]
        return f"{target.name} multiplies no {lacking[0]}" if lacking else None

    def why_unfit(self, schedule: Schedule, target: Target) -> str | None:
        program = schedule.program
        needs = [self.needs(program, kernel, target) for kernel in program.kernels]
        too_large = any(need.registers_per_thread > target.features.registers_per_thread // 4 for need in needs)
        return "too many sums" if too_large else None

    def distinguished(self, schedule: Schedule, target: Target) -> Distinguished | None:
        return None

    def needs(self, program: TileProgram, kernel: Kernel, target: Target) -> Resources:
        threads = kernel.launch.num_warps * target.wave
        sums = sum(s.dst.elements for s in statements(kernel.body) if isinstance(s, Dot))
        return Resources(0, sums // threads, threads)


def drawn(space: SearchSpace, count: int) -> list[Schedule]:
    rng = np.random.default_rng(5)
    return [*space.seeds()[:2], *(space.sample(rng) for _ in range(count))]


# A made-up device


@pytest.mark.parametrize("name", WORKLOADS)
def test_kernels_for_a_made_up_device_are_right(name: str) -> None:
    workload = WORKLOADS[name]
    inputs = random_inputs(workload, seed=1)
    for schedule in drawn(build(workload, MADE_UP), 4):
        got = interpreted(workload, schedule.program, [x.float().numpy() for x in inputs])
        made = [
            torch.from_numpy(np.asarray(g)).to(torch_dtype(t.dtype)) for g, t in zip(got, workload.outputs, strict=True)
        ]
        assert max(map(error_ratio, made, expect(workload, inputs))) <= 1, schedule


@pytest.mark.parametrize("name", WORKLOADS)
def test_programs_for_a_made_up_device_are_made_of_what_it_has(name: str) -> None:
    space = build(WORKLOADS[name], MADE_UP)
    for schedule in drawn(space, 20):
        assert space.why_illegal(schedule) is None
        for kernel in schedule.program.kernels:
            body, launch = [*statements(kernel.body)], kernel.launch
            assert launch.num_warps * MADE_UP.wave <= MADE_UP.threads
            assert (launch.producer_warps, launch.num_ctas, launch.dependent) == (0, 1, False)
            assert not any(isinstance(s, Load | Store) and s.via != "pointer" for s in body)
            tiles = {t.name: t for s in body for t in produced(s)}
            for dot in (s for s in body if isinstance(s, Dot)):
                extents = (*dot.dst.shape, tiles[dot.a].extent(dot.axis))
                least = (32, 32, 8)
                if tiles[dot.a].dtype == "float16":
                    assert all(x % y == 0 for x, y in zip(extents, least, strict=True))


def test_a_backend_of_a_made_up_device_has_limits_of_its_own() -> None:
    limits: dict[str, Limits] = {"m": FewSums()}
    space = build(WORKLOADS["product"], MADE_UP, limits)
    assert all(s.backend == "m" and space.why_illegal(s) is None for s in drawn(space, 10))
    whole = build(WORKLOADS["product"], MADE_UP).restricted("contraction", m=[(1, 128)], n=[(1, 256)], warps=[2])
    (start,) = {space.why_illegal(space.bind(dataclasses.replace(s, backend="m"))) for s in drawn(whole, 3)}
    assert start == "too many sums"
    with pytest.raises(EmptySearchSpaceError, match="m1 multiplies no float32"):
        build(WORKLOADS["float32"], MADE_UP, limits)


def test_tiles_are_no_smaller_than_what_one_instruction_makes() -> None:
    large = Features(wave=64, registers_per_thread=1024, matrix=(MatrixInstruction(512, 512, 512, ("float16",)),))
    space = build(ops.matmul(600, 600, 600, dtype="float16"), dataclasses.replace(MADE_UP, own=large))
    values = {k.name: k.values for k in space.sketch("contraction").knobs}
    assert {values[x] for x in "mnk"} == {((2, 512),)}


def test_printers_for_waves_of_32_refuse_others() -> None:
    other = dataclasses.replace(target_named("h200"), own=dataclasses.replace(GPUS["h200"].features, wave=64))
    assert backends.for_target(MADE_UP) == backends.for_target(other) == ()
    program = build(WORKLOADS["softmax"], other).sample(np.random.default_rng(0)).program
    for name in ("triton", "cuda"):
        backend = backends.named(name)
        reason = "h200 has waves of 64 threads; kernels are printed for waves of 32"
        assert backend.limits.why_unsupported(WORKLOADS["softmax"], other) == reason
        with pytest.raises(CompileError, match=r"of 64 threads|warps of 32"):
            backend.compile("", program, other)


# Records


@pytest.mark.parametrize("target", [*GPUS.values(), MADE_UP], ids=lambda t: t.name)
def test_a_target_is_read_as_it_was_written(target: Target) -> None:
    again = Target.from_json(json.loads(json.dumps(target.to_json())))
    assert (again, again.features, again.key, hash(again)) == (target, target.features, target.key, hash(target))


def test_records_of_listed_devices_tell_figures_alone() -> None:
    """So their lines are as they were before devices had features, which follow from the compute capability."""
    told = target_named("h200").to_json()
    assert "features" not in told
    assert all(not isinstance(value, dict | list) for value in told.values())


def test_features_that_are_told_in_part_are_otherwise_those_of_the_architecture() -> None:
    h200 = target_named("h200")
    narrow = Target.from_json({**h200.to_json(), "features": {"cluster": 1}})
    assert narrow.features == dataclasses.replace(h200.features, cluster=1)
    assert narrow != h200
    assert narrow.to_json() == {**h200.to_json(), "features": {"cluster": 1}}


def test_what_a_later_version_tells_is_kept_and_told_again() -> None:
    later = MADE_UP.to_json()
    later |= {"qubits": [8, {"depth": 3}]}
    later["features"]["tensor_memory_bytes"] = 2**18
    later["features"]["matrix"][0]["sparse"] = "2:4"
    again = Target.from_json(json.loads(json.dumps(later)))
    assert again.to_json() == later
    assert (again, again.key) == (MADE_UP, MADE_UP.key)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"wave": 0}, "features: wave 0, expected an integer from 1"),
        ({"matrix": [{"m": 16, "n": 8}]}, "features: matrix: k, types is missing"),
        ({"matrix": 3}, "features: matrix 3, expected a list"),
        ({"descriptors": {"alignment_bytes": 16}}, "features: descriptors: longest is missing"),
        ({"instructions": [3]}, "features: instructions 3, expected text"),
        ({"speed": float("inf")}, "not JSON compliant"),
    ],
)
def test_features_that_no_device_has_are_refused(told: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Target.from_json({**MADE_UP.to_json(), "features": told})


# Listed devices


def test_architectures_differ_in_what_they_multiply_and_from_where() -> None:
    def where(name: str, element: str) -> set[tuple[str, str]]:
        return {(i.operands, i.sums) for i in target_named(name).features.multiplying(element)}

    assert where("v100", "bfloat16") == where("t4", "tf32") == where("a100", "float8_e5m2") == set()
    assert where("rtx4090", "float8_e5m2") == where("rtx5090", "float16") == {("registers", "registers")}
    assert where("h200", "float16") == {("registers", "registers"), ("shared", "registers")}
    assert where("b200", "float16") == {("registers", "registers"), ("shared", "tensor")}


def test_groups_of_waves_multiply_on_hopper_alone() -> None:
    assert {name.partition("-")[0] for name, gpu in GPUS.items() if gpu.wave_groups} == {"h100", "h200"}
    groups = target_named("h200").wave_groups
    assert groups is not None
    assert (groups.threads, groups.rows, groups.widest) == (128, 64, 256)
    # 168 for each of 384 threads; 24 for the one that brings operands leave 240 for the others.
    assert (groups.first_registers(2), groups.group_registers(2)) == (168, 240)


def test_dots_of_a_blackwell_for_the_desktop_read_registers() -> None:
    """So a stage less waits in shared memory than of dots that read it: seen on what Triton 3.9 compiles."""
    rtx5090, triton = target_named("rtx5090"), backends.named("triton")
    tile = {"m": [(16, 128)], "n": [(8, 256)], "k": [(16, 128)], "stages": [2], "warps": [8], "grid": ["tiles"]}
    one_kernel = {"split": [1], "subtiles": [1], "ctas": [1], "max_registers": [0], "swap": [False]}
    plain = {"a_load": ["pointer"], "b_load": ["pointer"], "store": ["pointer"]}
    space = build(ops.matmul(2048, 2048, 2048, dtype="float16"), rtx5090, {"triton": triton.limits})
    program = space.restricted("contraction", **tile, **one_kernel, **plain).sample(np.random.default_rng(0)).program
    made = triton.compile(triton.render(program, "", rtx5090), program, rtx5090)
    need = triton.limits.needs(program, program.kernels[0], rtx5090)
    assert need is not None
    assert 0 <= need.shared_memory_bytes - made.facts.shared_memory_bytes <= 64
