"""Products whose rows data cuts into segments: what tiles of one segment each compute, and where they store it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import best_spaces
from autosched import backends
from autosched.backends import spaces
from autosched.backends.build import build
from autosched.backends.triton.backend import TritonBackend
from autosched.checking.reference import evaluate
from autosched.tracing import trace
from scheduled_tensors import given_back, interpreted, taken_by_name
from search_spaces import Axis, Reduction, Schedule, SearchSpace, Stage, Tensor, Workload, ops, target_named
from search_spaces.anchors.contractions.class_tiles import ClassTiles
from search_spaces.decisions.decision import each_body
from search_spaces.programs.statements import Load, Store, statements
from search_spaces.structure.segmented import segmented
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import (
    Access,
    Expression,
    Gather,
    Integer,
    Literal,
    Segment,
    call,
    mul,
    sub,
)

H200, V100 = target_named("h200"), target_named("v100")
ROWS, COLUMNS, DEPTH, GROUPS = 70, 24, 40, 5
# Products of these numbers are exact in float32, and sums of them are rounded to float16 once.
TOLERANCE = 2e-3
M, N, K = Axis("m", ROWS), Axis("n", COLUMNS), Axis("k", DEPTH)
SEGMENT = Segment("ends", axis_index("m"), GROUPS)


def at(tensor: str, *axes: str) -> Access:
    return Access(tensor, tuple(map(axis_index, axes)))


def table(tensor: str, *axes: str, number: Expression = SEGMENT) -> Gather:
    return Gather(tensor, (number, *map(axis_index, axes)))


def workload(sums: Sequence[Expression], result: Expression, ends: int = GROUPS, **more: tuple[int, ...]) -> Workload:
    """`result` of sums over k of x[m, k] times each of `sums`."""
    made = [Stage(f"sum{i}", (M, N), mul(at("x", "m", "k"), e), Reduction("sum", (K,))) for i, e in enumerate(sums)]
    inputs = [Tensor("x", (ROWS, DEPTH), "float16"), Tensor("w", (GROUPS, DEPTH, COLUMNS), "float16")]
    inputs += [Tensor(name, shape, "float16") for name, shape in more.items()]
    stages = (*made, Stage("out", (M, N), result, dtype="float16"))
    return Workload("grouped", (*inputs, Tensor("ends", (ends,), "int32")), stages)


def masked(e: Expression) -> Expression:
    return call("where", call("lt", SEGMENT, Integer(GROUPS)), e, Literal(0.0))


def turned() -> Workload:
    """out[n, m] = sum over k of w[segment of m, n, k] * x[k, m]: columns are cut."""
    product = mul(table("w", "n", "k"), at("x", "k", "m"))
    inputs = (
        Tensor("w", (GROUPS, COLUMNS, DEPTH), "float16"),
        Tensor("x", (DEPTH, ROWS), "float16"),
        Tensor("ends", (GROUPS,), "int64"),
    )
    stages = (
        Stage("sums", (N, M), product, Reduction("sum", (K,))),
        Stage("out", (N, M), masked(at("sums", "n", "m")), dtype="float16"),
    )
    return Workload("turned", inputs, stages)


def gathered() -> Workload:
    """Rows of x by an index, as tokens are sorted by expert, times a scale of their segment."""
    made = workload([table("w", "k", "n")], at("sum0", "m", "n"), scale=(GROUPS, DEPTH))
    rows = Gather("x", (call("to_integer", at("rows", "m")), axis_index("k")))
    scaled = mul(call("round_float16", mul(rows, table("scale", "k"))), table("w", "k", "n"))
    sums = replace(made.stages[0], expression=scaled)
    inputs = (*made.inputs, Tensor("rows", (ROWS,), "int32"))
    return replace(made, inputs=inputs, stages=(sums, made.stages[1]))


BY_OFFSETS = sub(Segment("ends", axis_index("m"), GROUPS + 1), Integer(1))
WORKLOADS = {
    "zeros behind the last end": workload([table("w", "k", "n")], masked(at("sum0", "m", "n"))),
    "NaN behind the last end": workload([table("w", "k", "n")], at("sum0", "m", "n")),
    "offsets": workload([table("w", "k", "n", number=BY_OFFSETS)], at("sum0", "m", "n"), ends=GROUPS + 1),
    "two products and a bias": workload(
        [table("w", "k", "n"), table("v", "k", "n")],
        masked(mul(call("maximum", at("sum0", "m", "n"), table("bias", "n")), at("sum1", "m", "n"))),
        v=(GROUPS, DEPTH, COLUMNS),
        bias=(GROUPS, COLUMNS),
    ),
    "columns": turned(),
    "rows that are looked up": gathered(),
}


def in_segments(space: SearchSpace) -> SearchSpace:
    return replace(space, sketches=tuple(s for s in space.sketches if s.name == "segmented_contraction"))


def inputs_of(made: Workload, ends: Sequence[int], seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.tensor(ends[: t.elements]).to(getattr(torch, t.dtype))
        if t.name == "ends"
        else torch.arange(ROWS, dtype=torch.int32).flip(0)
        if t.name == "rows"
        else torch.randint(-8, 9, t.shape, generator=generator).to(torch.float16) / 8
        for t in made.inputs
    ]


def drawn(name: str, seed: int) -> Schedule:
    return in_segments(best_spaces.build(WORKLOADS[name], H200)).sample(np.random.default_rng(seed))


def check(name: str, schedule: Schedule, ends: Sequence[int], seed: int, run: Callable[..., Any]) -> None:
    made = WORKLOADS[name]
    inputs = inputs_of(made, ends, seed)
    (expected,) = evaluate(made, inputs)
    with np.errstate(invalid="ignore"):
        (got,) = run(made, schedule.program, [x.numpy() for x in inputs])
    np.testing.assert_allclose(got, expected, rtol=TOLERANCE, atol=TOLERANCE, err_msg=schedule.one_line)


# Empty segments, all rows in one, ends behind the last row and before the first one.
cuts = st.lists(st.integers(-3, ROWS + 9), min_size=GROUPS + 1, max_size=GROUPS + 1).map(sorted)
cuts |= st.lists(st.sampled_from([0, 32, ROWS]), min_size=GROUPS + 1, max_size=GROUPS + 1).map(sorted)


@pytest.mark.parametrize("backend", ["triton", "cuda"])
def test_one_segment_has_the_kernels_of_several(backend: str) -> None:
    by = backends.named(backend)
    space = spaces.build(ops.grouped_matmul(1, 512, 512, 512, "float16"), H200, [by])
    assert len([by.render(s.program, "", H200) for s in space.seeds()[:20]]) == 20


@pytest.mark.parametrize("name", WORKLOADS)
@given(ends=cuts, seed=st.integers(0, 2**20))
@settings(max_examples=12, deadline=None)
def test_every_row_is_multiplied_by_the_matrix_of_its_segment(name: str, ends: list[int], seed: int) -> None:
    check(name, drawn(name, seed), ends, seed, interpreted)


@given(ends=cuts, seed=st.integers(0, 2**20))
@settings(max_examples=12, deadline=None)
def test_every_element_is_stored_once(ends: list[int], seed: int) -> None:
    """Stores add here, to zeros: what two tiles store would be the sum of both."""

    def added(made: Workload, program: Any, inputs: Any) -> Any:
        adding = each_body(program, lambda s: replace(s, atomic=True) if isinstance(s, Store) else s)
        outputs = tuple(b.name for b in adding.buffers if b.role == "output")
        return interpreted(made, replace(adding, zeroed=outputs), inputs)

    name = "zeros behind the last end"
    check(name, drawn(name, seed), ends, seed, added)


@given(ends=st.permutations([-9, 5, 40, 40, 2**31 - 1, -(2**31)]), seed=st.integers(0, 2**20))
@settings(max_examples=8, deadline=None)
def test_nothing_is_stored_outside_of_the_output_whatever_the_ends_are(ends: list[int], seed: int) -> None:
    """The interpreter asserts that places outside of a buffer are tested."""
    made = WORKLOADS["zeros behind the last end"]
    inputs = [x.numpy() for x in inputs_of(made, ends, seed)]
    interpreted(made, drawn("zeros behind the last end", seed).program, inputs)


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_triton_computes_the_same(triton_interpreter: Any, name: str) -> None:
    def run(made: Workload, program: Any, inputs: Any) -> Any:
        source = TritonBackend().render(program, "", H200)
        return given_back(
            made, program, triton_interpreter.run_all(source, program, taken_by_name(made, program, inputs))
        )

    for seed, ends in enumerate([[0, 0, 33, 64, 66, 70], [3, 9, 9, 40, 61, 61]]):
        check(name, drawn(name, seed), ends, seed, run)


@pytest.mark.parametrize(("backend", "target"), [("triton", H200), ("triton", V100), ("cuda", H200), ("cuda", V100)])
def test_kernels_compile(backend: str, target: Any) -> None:
    space = in_segments(spaces.build(WORKLOADS["zeros behind the last end"], target, [backends.named(backend)]))
    schedule = space.seeds()[0]
    assert build(schedule.program, schedule.one_line, target, backends.named(backend)).binaries


def test_starts_read_both_operands_by_descriptor_and_have_tiles_of_a_segment() -> None:
    space = in_segments(spaces.build(WORKLOADS["zeros behind the last end"], H200, [TritonBackend()]))
    starts = space.seeds()
    start = starts[0]
    loads = [s for s in statements(start.program.kernels[-1].body) if isinstance(s, Load)]
    assert sum(s.via == "descriptor" for s in loads) == 2
    assert {s.knobs.tile("m") for s in starts} >= {16, 128}, "14 rows a segment, or all 70 in one"


@given(lengths=st.lists(st.integers(0, 40), min_size=1, max_size=9), size=st.sampled_from([8, 16, 64]))
def test_there_are_tiles_for_all_segments(lengths: list[int], size: int) -> None:
    rows = Axis("m", max(1, sum(lengths)))
    tiles = ClassTiles((rows,), rows, size, "box", cuts=len(lengths) - 1)
    assert tiles.count >= sum(-(-length // size) for length in lengths)


def test_no_tile_is_in_vain_where_every_segment_has_one_row_too_many() -> None:
    rows = Axis("m", 3 * 65)
    assert ClassTiles((rows,), rows, 64, "box", cuts=2).count == 6


def replaced(made: Workload, old: Expression, new: Expression) -> Workload:
    def change(e: Expression) -> Expression:
        if e == old:
            return new
        return call(e.operator, *map(change, e.arguments)) if hasattr(e, "arguments") else e

    return replace(made, stages=tuple(replace(s, expression=change(s.expression)) for s in made.stages))


def test_other_look_ups_are_no_segments() -> None:
    made, entry = WORKLOADS["NaN behind the last end"], table("w", "k", "n")
    assert segmented(made) is not None
    by_row = Gather("w", (call("to_integer", at("rows", "m")), *entry.index[1:]))
    other_ends = Segment("others", axis_index("m"), GROUPS)
    every_other = Segment("ends", axis_index("m") * 2, GROUPS)
    for look_up in (by_row, table("w", "k", "n", number=every_other)):
        inputs = (*made.inputs, Tensor("rows", (ROWS,), "int32"))
        assert segmented(replaced(replace(made, inputs=inputs), entry, look_up)) is None
    two = replace(made, inputs=(*made.inputs, Tensor("others", (GROUPS,), "int32")))
    result = call("where", call("lt", other_ends, Integer(2)), at("sum0", "m", "n"), Literal(0.0))
    assert segmented(replaced(two, at("sum0", "m", "n"), result)) is None


def test_a_layer_of_experts_is_two_products_of_segments_in_one_of_its_cuts() -> None:
    """Rows are looked up, and gate and up are multiplied in one loop; no cut has a chain of rows."""

    def layer(x: Any, gate: Any, up: Any, down: Any, ends: Any, rows: Any) -> Any:
        h = x[rows]
        hidden = F.silu(torch._grouped_mm(h, gate, offs=ends)) * torch._grouped_mm(h, up, offs=ends)
        return torch._grouped_mm(hidden, down, offs=ends)

    x, up, down = (torch.zeros(shape, dtype=torch.bfloat16) for shape in ((64, 32), (4, 32, 48), (4, 48, 32)))
    ends, rows = torch.tensor([10, 20, 40, 64], dtype=torch.int32), torch.arange(64)
    cuts = [cut.launched for cut in trace(layer, x, up, up.clone(), down, ends, rows).cuts]
    sums = [w for cut in cuts for w in cut if any(s.reduction for s in w.stages)]
    assert all(segmented(w.scheduled) for w in sums)
    assert min(map(len, cuts)) == 2
