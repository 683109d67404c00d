"""Operands whose tiles are looked up: what programs with places that are data compute, and how they are loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import best_spaces
from autosched import backends
from autosched.backends import spaces
from autosched.backends.build import build
from autosched.backends.triton.backend import TritonBackend
from autosched.checking.reference import evaluate
from cuda_on_cpu import EmulatedProgram
from scheduled_tensors import given_back, interpreted, launched_on, taken_by_name
from search_spaces import Axis, Reduction, Schedule, SearchSpace, Stage, Tensor, Workload, ops, target_named
from search_spaces.programs.statements import For, Gather, Let, Load, statements
from search_spaces.structure.contraction import contraction
from search_spaces.structure.looked_up import with_looked_up_tiles
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Integer, Literal, Position
from search_spaces.workloads.expressions.expression import Gather as LookUp

H200, A100 = target_named("h200"), target_named("a100")
# Products of these numbers are exact in float32, and sums of them are rounded once.
TOLERANCE = 2e-3
PAGE, PAGES, READ = 16, 6, 5


def at(tensor: str, *axes: str) -> Access:
    return Access(tensor, tuple(map(axis_index, axes)))


def integer(e: Expression) -> Expression:
    return ex.call("to_integer", e)


def place(axis: str) -> Expression:
    return integer(at("places", axis))


def workload(
    axes: dict[str, int], summed: dict[str, int], product: Expression, index: str = "int64", **inputs: tuple[int, ...]
) -> Workload:
    """out = the sum of products of tensors of float16; `places` are integers."""
    tensors = [Tensor(n, shape, index if n == "places" else "float16") for n, shape in inputs.items()]
    outer, inner = (tuple(Axis(x, e) for x, e in some.items()) for some in (axes, summed))
    stage = Stage("out", outer, product, Reduction("sum", inner), dtype="float16")
    return Workload("looked_up", tuple(tensors), (stage,))


def pages(size: int, index: str, within: Affine, kept: bool = True) -> Workload:
    """out[m, n] = sum over t, p of x[m, t, p] * rows[places[t] * size + p, n], with `kept`: at pages 1 and 2 alone."""
    row = LookUp("rows", (ex.add(ex.mul(place("t"), Integer(size)), integer(Position(within))), axis_index("n")))
    inside = ex.call("lt", Position(axis_index("t")), Literal(3.0))
    value = row if kept else ex.call("where", inside, row, Literal(0.0))
    shapes = {"x": (40, READ, PAGE), "places": (READ,), "rows": (PAGES * size, 48)}
    product = ex.mul(at("x", "m", "t", "p"), value)
    return workload({"m": 40, "n": 48}, {"t": READ, "p": PAGE}, product, index, **shapes)


def matrices() -> Workload:
    """out[b, m, n] = sum over k of x[b, m, k] * w[places[b], k, n]."""
    product = ex.mul(at("x", "b", "m", "k"), LookUp("w", (place("b"), axis_index("k"), axis_index("n"))))
    shapes = {"x": (READ, 40, 32), "places": (READ,), "w": (PAGES, 32, 48)}
    return workload({"b": READ, "m": 40, "n": 48}, {"k": 32}, product, **shapes)


P = axis_index("p")
LOOKED_UP = {
    "pages": pages(PAGE, "int64", P),
    "pages by 32 bits": pages(PAGE, "int32", P),
    "a part of longer pages": pages(24, "int32", P + Affine(offset=8)),
    "pages where a condition holds": pages(PAGE, "int64", P, kept=False),
    "matrices of a batch": matrices(),
}
BLOCKS = ops.block_sparse_matmul(128, 48, PAGES * 64, blocks=READ, block=64, dtype="float16")
SHORT = ops.block_sparse_matmul(64, 48, PAGES * 32, blocks=READ, block=32, dtype="float16")
WORKLOADS = {**LOOKED_UP, "blocks": BLOCKS, "short blocks": SHORT}
# Also of no page; of these, 2**60 times a size of 16 wraps around to 0, which is page 0.
places = st.lists(st.sampled_from([0, 1, 2, 5, 6, -1, 2**31 - 1, -(2**31), 2**60]), min_size=READ, max_size=READ)


def inputs_of(made: Workload, numbers: Sequence[int], seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def one(t: Tensor) -> torch.Tensor:
        if t.name == "crow_indices":
            return torch.tensor([0, 2, 4 + seed % 2], dtype=torch.int32)
        if t.name in ("places", "col_indices"):
            fitting = [n if t.dtype == "int64" or abs(n) <= 2**31 else 0 for n in numbers]
            return torch.tensor(fitting).to(getattr(torch, t.dtype))
        return torch.randint(-8, 9, t.shape, generator=generator).to(torch.float16) / 8

    return [one(t) for t in made.inputs]


def space_of(name: str) -> SearchSpace:
    return best_spaces.build(WORKLOADS[name], H200).restricted("contraction")


def drawn(name: str, seed: int) -> Schedule:
    return space_of(name).sample(np.random.default_rng(seed))


def check(name: str, schedule: Schedule, numbers: Sequence[int], seed: int, run: Callable[..., Any]) -> None:
    made = WORKLOADS[name]
    inputs = inputs_of(made, numbers, seed)
    (expected,) = evaluate(made, inputs)
    with np.errstate(invalid="ignore"):
        (got,) = run(made, schedule.program, [x.numpy() for x in inputs])
    np.testing.assert_allclose(got, expected, rtol=TOLERANCE, atol=TOLERANCE, err_msg=schedule.one_line)


@pytest.mark.parametrize("name", WORKLOADS)
@given(numbers=places, seed=st.integers(0, 2**20))
@settings(max_examples=8, deadline=None)
def test_programs_read_what_gathers_do(name: str, numbers: list[int], seed: int) -> None:
    check(name, drawn(name, seed), numbers, seed, interpreted)


@pytest.mark.parametrize("name", ["pages", "matrices of a batch", "blocks"])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_triton_computes_the_same(triton_interpreter: Any, name: str) -> None:
    def run(made: Workload, program: Any, inputs: Any) -> Any:
        source = TritonBackend().render(program, "", H200)
        taken = taken_by_name(made, program, inputs)
        return given_back(made, program, triton_interpreter.run_all(source, program, taken))

    for seed, numbers in enumerate([[0, 5, 2, 1, 1], [3, -1, 0, 6, 2]]):
        check(name, space_of(name).seeds()[seed], numbers, seed, run)


def test_cuda_computes_the_same(tmp_path: Path) -> None:
    made = WORKLOADS["pages"]
    schedule = spaces.build(made, A100, [backends.named("cuda")]).restricted("contraction").seeds()[0]
    for numbers in ([0, 5, 2, 1, 1], [3, -1, 0, 6, 2]):
        inputs = inputs_of(made, numbers, 0)
        out = torch.full((40, 48), 7.0, dtype=torch.float16)
        EmulatedProgram(schedule.program, A100, tmp_path)(launched_on(made, inputs, out))
        np.testing.assert_allclose(out.numpy(), evaluate(made, inputs)[0], rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("name", LOOKED_UP)
def test_tiles_are_loaded_where_the_data_says(name: str) -> None:
    for seed in range(3):
        body = [*statements(drawn(name, seed).program.kernels[0].body)]
        assert any(isinstance(s, Let) for s in body)
        assert not any(isinstance(s, Gather) for s in body)


def test_starts_load_blocks_by_descriptors_and_run_over_those_of_their_rows_alone() -> None:
    schedule = next(s for s in space_of("blocks").seeds() if dict(s.values)["b_load"] == "descriptor")
    kernel = schedule.program.kernels[0]
    loads = [s for s in statements(kernel.body) if isinstance(s, Load) and len(s.dst.axes) == 2]
    assert [s.via for s in loads] == ["descriptor", "descriptor"]
    assert not any(isinstance(s, Gather) for s in statements(kernel.body))
    (loop,) = (s for s in kernel.body if isinstance(s, For))
    assert loop.digits is not None
    assert loop.until
    assert loop.since


def test_columns_of_other_rows_are_not_read() -> None:
    """A block of another row that is in no column makes nothing NaN."""
    schedule = space_of("blocks").seeds()[0]
    inputs = [x.numpy() for x in inputs_of(BLOCKS, [0, 1, 99, 3, 4], 0)]
    (got,) = interpreted(BLOCKS, schedule.program, inputs)
    assert np.isnan(got[1]).all()
    assert np.isfinite(got[0]).all()


@pytest.mark.parametrize(("name", "backend"), [("short blocks", "triton"), ("blocks", "triton"), ("blocks", "cuda")])
def test_kernels_compile(name: str, backend: str) -> None:
    space = spaces.build(WORKLOADS[name], H200, [backends.named(backend)]).restricted("contraction")
    schedule = space.seeds()[0]
    assert build(schedule.program, schedule.one_line, H200, backends.named(backend)).binaries


def test_other_look_ups_are_gathers() -> None:
    """A part of two pages, pages that end outside of the tensor, and a place for every row."""
    by_row = ex.mul(at("x", "m", "p"), LookUp("rows", (place("p"), axis_index("n"))))
    rows = {"x": (40, PAGE), "places": (PAGE,), "rows": (96, 48)}
    others = (
        pages(PAGE, "int64", P + Affine(offset=8)),
        pages(24, "int64", P),
        workload({"m": 40, "n": 48}, {"p": PAGE}, by_row, **rows),
    )
    for other in others:
        form = contraction(other)
        assert form is not None
        assert with_looked_up_tiles(form) is form
    form = contraction(pages(PAGE, "int64", P))
    assert form is not None
    assert len(with_looked_up_tiles(form).looked_up) == 1
