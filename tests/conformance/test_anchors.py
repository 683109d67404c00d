"""Every anchor on every operator it matches: the lowered program, interpreted, against the float64 reference."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import pytest
import torch

import search_spaces
from autosched.backends import for_target
from autosched.backends.llvm.backend import LlvmBackend
from autosched.backends.triton.backend import TritonBackend
from autosched.backends.triton.resources import why_too_large
from autosched.checking import reference
from autosched.checking.correctness import Expectation, error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from autosched.machine import devices
from autosched.machine.element_types import torch_dtype
from best_spaces import build, streamed
from chained_workloads import Scores, adapter, attention
from convolutions import convolution
from dependent_workloads import IN_ONE_WALK, IN_SEVERAL
from fused_workloads import gated, prepared, sum_of_products
from row_kinds import parts
from scanned_workloads import recurrence
from scheduled_tensors import interpreted, launched_on
from search_spaces import (
    Axis,
    EmptySearchSpaceError,
    Reduction,
    SearchSpace,
    Stage,
    Target,
    Tensor,
    Workload,
    anchors,
    ops,
)
from search_spaces.devices.target import GPUS, cpu
from search_spaces.programs.statements import Dot, produced, statements
from search_spaces.programs.tile_program import Kernel
from search_spaces.workloads.dtypes import FLOAT8
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access
from structured_workloads import POINTWISE, REDUCTIONS, sums_of_both

CPU = cpu("a CPU", lanes=8, threads=1, l1_bytes=32768, l2_bytes=2**20, fp32_flops=1e11)
TARGETS = {"cpu": CPU, "a100": GPUS["a100"], "h200": GPUS["h200"]}

WORKLOADS = (
    ops.gelu_scale(1003),
    ops.pointwise(13, 101, "bias_silu_gate_relu"),
    ops.matmul(37, 50, 65, epilogue="bias_gelu_residual_scale"),
    ops.matmul(33, 65, 300, layout="tt", batch=2),
    ops.matmul(20, 24, 700, layout="nt", epilogue="relu"),
    ops.matmul(3, 70, 300, layout="nt", epilogue="bias_gelu"),
    ops.matmul(1, 130, 700, epilogue="residual"),
    ops.matmul(90, 5, 333, layout="tt", batch=2),
    ops.softmax(9, 301),
    ops.softmax(3, 5000),
    ops.layernorm(7, 2500),
    ops.rmsnorm(5, 77),
    ops.row_sum(11, 3001),
    # Matrix products of every element type, at sizes that are multiples of nothing.
    *(ops.matmul(37, 70, 515, dtype=dtype, layout="tn", epilogue="bias_gelu") for dtype in ("float16", "bfloat16")),
    *(ops.matmul(19, 41, 333, dtype=dtype, layout="nn", batch=2) for dtype in ("float16", "tf32", "int8")),
    *(ops.matmul(33, 23, 130, dtype=f, layout="nt", epilogue="rowscale_colscale") for f in ("float16", *FLOAT8)),
    ops.matmul(50, 29, 515, dtype="int8", layout="tt", epilogue="rowscale_colscale", out_dtype="bfloat16"),
    convolution((9, 7), (3, 3), channels=19, filters=33, padding=1, batch=2, dtype="float32"),
    recurrence(3, 2500),
    attention(2, 32, 48, 40, scores=Scores(causal=True, with_logarithm=True), shared=2, values=16),
)


# What CPUs have no sketch for.
GPU_WORKLOADS = (
    gated(35, 50, 67, batch=2),
    gated(40, 33, 131, "bfloat16", prologue="normalised", layout="t"),
    gated(17, 64, 99, prologue="relu_scale"),
    sum_of_products(33, 65, 90, "float32"),
    prepared(37, 70, 515, prologue="decayed", computed="ab"),
    sums_of_both(70, 45),
    attention(2, 40, 70, 48, scores=Scores(causal=True, with_logarithm=True), shared=2, values=16),
    attention(1, 33, 33, 32, "float32", Scores(bias="mc", slopes=True)),
    # Fewer rows than the smallest tile has, of columns that programs share.
    adapter(12, 70, 48, 16),
    ops.grouped_matmul(5, 70, 40, 33, dtype="float16"),
    # More rows than the longest tile has, of weights that are stored first.
    ops.matmul(257, 33, 48, "float16", b_dtype="int4", group=16),
)


def spaces() -> list[tuple[str, SearchSpace]]:
    given = {name: WORKLOADS if t.kind == "cpu" else (*WORKLOADS, *GPU_WORKLOADS) for name, t in TARGETS.items()}
    found = [(name, build(w, TARGETS[name])) for name, known in given.items() for w in known if computable(w, name)]
    # What CUDA C++ alone has.
    return [*found, *((name, streamed(TARGETS[name])) for name in ("a100", "h200"))]


def computable(workload: Workload, target: str) -> bool:
    backends = for_target(TARGETS[target])
    return any(b.limits.why_unsupported(workload, TARGETS[target]) is None for b in backends)


def samples(space: SearchSpace, sketch: str, count: int) -> list[search_spaces.Schedule]:
    """So many legal schedules of one sketch."""
    only = dataclasses.replace(space, sketches=tuple(s for s in space.sketches if s.name == sketch))
    rng = np.random.default_rng(7)
    return list(dict.fromkeys(only.sample(rng) for _ in range(count)))


CASES = [
    pytest.param(part, part.sketches[0].name, id=f"{target}-{part.sketches[0].name}-{i}-{n}")
    for i, (target, space) in enumerate(spaces())
    for n, part in enumerate(parts(space))
]


# Programs of a sketch for each target: three for a CPU, and four for GPUs together, whose lowering is one.
DRAWN = {"cpu": 3, "gpu": 2}


@pytest.mark.parametrize(("space", "sketch"), CASES)
def test_lowered_programs_compute_the_workload(space: SearchSpace, sketch: str) -> None:
    inputs = random_inputs(space.workload, seed=3)
    wanted = expect(space.workload, inputs)
    for schedule in samples(space, sketch, DRAWN[space.target.kind]):
        got = interpreted(space.workload, schedule.program, [x.double() for x in inputs])
        check(wanted, got, schedule)


def check(wanted: Sequence[Expectation], got: Sequence[np.ndarray], schedule: search_spaces.Schedule) -> None:
    """Every output is right."""
    for output, expected in zip(got, wanted, strict=True):
        assert error_ratio(torch.from_numpy(output), expected) <= 1, str(schedule)


STRUCTURES = (*POINTWISE, *REDUCTIONS, *IN_ONE_WALK, *(workload for workload, _ in IN_SEVERAL))
STRUCTURED = [
    pytest.param(workload, target, id=f"{target}-{workload.name}-{i}")
    for i, workload in enumerate(STRUCTURES)
    for target in TARGETS
]


@pytest.mark.parametrize(("workload", "target"), STRUCTURED)
def test_every_structure_is_computed_by_the_interpreter(workload: Workload, target: str) -> None:
    inputs = random_inputs(workload, seed=3)
    wanted, space = expect(workload, inputs), build(workload, TARGETS[target])
    for part in parts(space):
        for schedule in samples(part, part.sketches[0].name, 2):
            got = interpreted(workload, schedule.program, [x.double() for x in inputs])
            check(wanted, got, schedule)


@pytest.mark.parametrize("workload", STRUCTURES, ids=lambda w: w.name)
def test_every_structure_is_computed_by_machine_code(workload: Workload) -> None:
    backend, target = LlvmBackend(), devices.cpu_target()
    inputs = random_inputs(workload, seed=4)
    wanted, space = expect(workload, inputs), build(workload, target)
    for part in parts(space):
        for schedule in samples(part, part.sketches[0].name, 2):
            program = schedule.program
            launcher = backend.load(backend.compile(backend.render(program, "", target), program, target), program)
            got = [torch.full(o.shape, 7, dtype=torch_dtype(o.dtype)) for o in workload.outputs]
            launcher(launched_on(workload, inputs, *got))
            launcher.unload()
            for output, expected in zip(got, wanted, strict=True):
                assert error_ratio(output, expected) <= 1, str(schedule)


# Triton's interpreter computes bfloat16 wrongly.
# Each takes it milliseconds, one after the other, and what the hundredth does the first ones did.
MOST_PROGRAMS = 64
INTERPRETED = [w for w in (*POINTWISE, *REDUCTIONS) if "bfloat16" not in {t.dtype for t in (*w.inputs, *w.outputs)}]


def programs_of(schedule: search_spaces.Schedule) -> int:
    return sum(kernel.grid.programs for kernel in schedule.program.kernels)


@pytest.mark.parametrize("workload", INTERPRETED, ids=lambda w: w.name)
def test_every_structure_is_computed_by_printed_triton(triton_interpreter, workload: Workload) -> None:
    backend, space = TritonBackend(), build(workload, TARGETS["h200"])
    inputs = random_inputs(workload, seed=5)
    wanted = expect(workload, inputs)
    for part in parts(space):
        # Those of few programs first, in the order in which they were drawn.
        drawn = sorted(samples(part, part.sketches[0].name, 12), key=lambda s: max(MOST_PROGRAMS, programs_of(s)))
        for schedule in drawn[:1]:
            source = backend.render(schedule.program, "", TARGETS["h200"])
            check(wanted, triton_interpreter.computed(source, workload, schedule.program, inputs), schedule)


@pytest.mark.parametrize(("space", "sketch"), CASES)
def test_legal_schedules_fit_the_target(space: SearchSpace, sketch: str) -> None:
    for schedule in samples(space, sketch, 10):
        if space.target.kind == "gpu":
            assert why_too_large(schedule.program, space.target) is None
            for kernel in schedule.program.kernels:
                assert_fits_a_gpu(kernel, space.target)


def assert_fits_a_gpu(kernel: Kernel, target: Target) -> None:
    """The least that a kernel needs, counted here, without the estimate that legality is decided by.

    Limits: threads of a block and registers of a thread from the CUDA programming guide, elements of a tile from
    Triton.
    """
    body = list(statements(kernel.body))
    tiles = {tile.name: tile for s in body for tile in produced(s)}
    threads = 32 * kernel.launch.num_warps
    dots = [s for s in body if isinstance(s, Dot)]
    accumulators = {dot.dst.name: dot.dst.elements for dot in dots}
    assert threads <= 1024
    assert all(tile.elements <= 2**20 for tile in tiles.values())
    assert sum(accumulators.values()) <= 255 * threads
    # A dot has both operands at a time, of which Hopper's reads at least the columns from shared memory.
    assert all(tiles[dot.b].bytes <= target.shared_memory_bytes for dot in dots)


@pytest.mark.parametrize(("space", "sketch"), CASES)
def test_legality_depends_on_the_declared_knobs_alone(space: SearchSpace, sketch: str) -> None:
    rng, rule = np.random.default_rng(0), space.sketch(sketch)

    def legal(schedule: search_spaces.Schedule) -> bool:
        # A space of its own each time: one remembers what it found for the declared knobs.
        return dataclasses.replace(space, _broken={}).why_illegal(schedule) is None

    for _ in range(30):
        values = {k.name: k.sample(rng) for k in rule.knobs}
        other = {
            n: v if n in rule.legality_knobs else k.sample(rng)
            for (n, v), k in zip(values.items(), rule.knobs, strict=True)
        }
        chosen = [search_spaces.Schedule(sketch, tuple(v.items())) for v in (values, other)]
        schedules = [space.bind(schedule) for schedule in chosen]
        assert legal(schedules[0]) == legal(schedules[1])


@pytest.mark.parametrize(("space", "sketch"), CASES)
def test_mutants_and_children_are_legal_points_of_the_space(space: SearchSpace, sketch: str) -> None:
    rng, found = np.random.default_rng(1), samples(space, sketch, 4)
    for a, b in itertools.pairwise(found):
        for child in (space.mutate(a, rng), space.crossover(a, b, rng), *list(space.neighbours(a))[:3]):
            assert space.why_illegal(child) is None
            assert space.bind(search_spaces.Schedule.from_json(child.to_json())) == child


def renamed_matmul() -> Workload:
    """sum over j of i[a, j] * partial[j, k], with the names that lowered loops and workspaces like to have."""
    m, n, k = Axis("m_0", 40), Axis("k", 50), Axis("n", 300)
    product = ex.mul(Access("i", _at("m_0", "n")), Access("partial", _at("n", "k")))
    stages = (
        Stage("acc", (m, n), product, Reduction("sum", (k,))),
        Stage("out", (m, n), ex.call("maximum", Access("acc", _at("m_0", "k")), ex.Literal(0.0))),
    )
    inputs = (Tensor("i", (40, 300), "float32"), Tensor("partial", (300, 50), "float32"))
    return Workload("renamed", inputs, stages)


def renamed_row_maxima() -> Workload:
    """The largest along the last axis of a tensor whose rows are called like columns."""
    n, c, w = Axis("n", 3), Axis("c", 5), Axis("r", 2100)
    return Workload(
        "renamed_rows",
        (Tensor("x", (3, 5, 2100), "float32"),),
        (Stage("top", (n, c), Access("x", _at("n", "c", "r")), Reduction("max", (w,))),),
    )


def _at(*names: str) -> tuple[Affine, ...]:
    return tuple(axis_index(n) for n in names)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("workload", [renamed_matmul(), renamed_row_maxima()], ids=lambda w: w.name)
def test_names_of_axes_and_tensors_are_free(workload: Workload, target: str) -> None:
    space = build(workload, TARGETS[target])
    inputs = random_inputs(workload, seed=3)
    expected = reference.evaluate(workload, inputs)[0].numpy()
    for part in parts(space):
        for schedule in samples(part, part.sketches[0].name, 4):
            got = interpreted(workload, schedule.program, inputs)[0]
            np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-4, err_msg=str(schedule))


def test_every_anchor_matches_some_workload_of_this_suite() -> None:
    used = {s.name for _, space in spaces() for s in space.sketches}
    assert used == {name for name, _ in anchors.anchors()}


def test_a_workload_that_no_anchor_matches_is_refused_with_those_that_were_tried() -> None:
    i, j = Axis("i", 4), Axis("j", 8)
    access = Access("x", (axis_index("j"), axis_index("i")))
    two_folds = (
        Stage("rows", (i,), access, Reduction("sum", (j,))),
        Stage("out", (j,), ex.mul(access, Access("rows", (axis_index("i"),))), Reduction("sum", (i,))),
    )
    workload = Workload("weighted_sums", (Tensor("x", (8, 4), "float32"),), two_folds)
    with pytest.raises(EmptySearchSpaceError, match=r"tried: .*reduction"):
        build(workload, CPU)


def test_infinities_and_masked_rows_come_out_as_in_pytorch() -> None:
    workload = ops.softmax(4, 600)
    x = random_inputs(workload, seed=0)[0]
    x[0, :400] = -torch.inf
    x[1, 5] = 80.0
    x[2] = -1e30
    space = build(workload, CPU)
    for part in parts(space):
        for schedule in samples(part, part.sketches[0].name, 8):
            np.testing.assert_allclose(interpreted(workload, schedule.program, [x])[0], torch.softmax(x, -1), atol=1e-6)
