"""Masks in memory that are known in blocks: loops skip fully masked iterations."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from autosched import trace
from autosched.backends import spaces
from autosched.backends.backend import CompileError
from autosched.backends.cuda.backend import CudaBackend
from autosched.backends.cuda.resources import resources
from autosched.backends.cuda.source import launched
from autosched.backends.llvm.backend import LlvmBackend
from autosched.backends.triton.backend import TritonBackend
from autosched.checking import reference
from autosched.checking.random_inputs import random_inputs
from autosched.machine.devices import cpu_target
from chained_workloads import Scores, attention, paged_attention
from cost_models.program_counts import count
from cuda_on_cpu import EmulatedProgram
from scheduled_tensors import interpreted, launched_on
from search_spaces import Schedule, Workload, target_named
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.interpreting.interpreter import interpret
from search_spaces.programs.statements import Fill, For, Load, Map, Store, statements
from search_spaces.programs.text import to_text
from search_spaces.programs.tile_program import Buffer, Kernel, TileProgram
from search_spaces.programs.tiles import Bound, Slice, Tile
from search_spaces.schedules.knobs import KnobValue, cover
from search_spaces.workloads.expressions.affine import Affine
from untuned import untuned_kernel

H200, A100, TRITON = target_named("h200"), target_named("a100"), TritonBackend()
CPU = cpu_target(1)
ROWS, COLUMNS, DEPTH = 64, 96, 16
# Rows of a block, and its columns: no tile of columns ends with those of 24.
SIZES = {8: 8, 16: 24, 32: 32}
Function = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def whole(mask: Tensor, rows: int = ROWS, columns: int = COLUMNS) -> Tensor:
    """The mask of every score, of the mask of blocks."""
    batch, heads, m, c = mask.shape
    blocks = mask[:, :, :, None, :, None].expand(batch, heads, m, rows // m, c, columns // c)
    return blocks.reshape(batch, heads, rows, columns)


def expanded(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    scores = (q @ k.transpose(-1, -2)) * 0.25
    return torch.softmax(scores.masked_fill(~whole(mask), -math.inf), -1) @ v


def repeated(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    scores = (q @ k.transpose(-1, -2)) * 0.25
    m, c = ROWS // mask.shape[-2], COLUMNS // mask.shape[-1]
    seen = mask.repeat_interleave(m, -2).repeat_interleave(c, -1)
    return torch.softmax(torch.where(seen, scores, -math.inf), -1) @ v


def fused(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=whole(mask))


def indexed(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    scores = (q @ k.transpose(-1, -2)) * 0.25
    m, c = ROWS // mask.shape[-2], COLUMNS // mask.shape[-1]
    rows, columns = torch.arange(ROWS)[:, None], torch.arange(COLUMNS)
    return torch.softmax(torch.where(mask[:, :, rows // m, columns // c], scores, -math.inf), -1) @ v


def viewed(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    m, c = mask.shape[-2:]
    scores = ((q @ k.transpose(-1, -2)) * 0.25).view(1, 2, m, ROWS // m, c, COLUMNS // c)
    left = scores.masked_fill(~mask[:, :, :, None, :, None], -math.inf)
    return torch.softmax(left.view(1, 2, ROWS, COLUMNS), -1) @ v


def causal(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    m, c = torch.arange(ROWS)[:, None] + COLUMNS - ROWS, torch.arange(COLUMNS)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=whole(mask) & (c <= m))


def windowed(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    m, c = torch.arange(ROWS)[:, None] + COLUMNS - ROWS, torch.arange(COLUMNS)
    scores = (q @ k.transpose(-1, -2)) * 0.25
    return torch.softmax(torch.where(whole(mask) & (c <= m) & (m - c < 40), scores, -math.inf), -1) @ v


def given(size: int, density: float = 0.4) -> tuple[Tensor, ...]:
    """q, k, v, and a mask of blocks of so many rows, of which every row sees one at least."""
    generator = torch.Generator().manual_seed(size)
    q, k, v = (torch.randn(1, 2, n, DEPTH, generator=generator).half() for n in (ROWS, COLUMNS, COLUMNS))
    mask = torch.rand(1, 2, ROWS // size, COLUMNS // SIZES[size], generator=generator) < density
    mask[..., 0] |= ~mask.any(-1)
    return q, k, v, mask


@functools.cache
def traced(function: Function, size: int) -> tuple[Workload, tuple[tuple[int, ...], ...]]:
    """The one kernel that a function is, and for each of its inputs which argument of the function and its shape."""
    (step,) = (made := trace(function, *given(size))).steps
    assert step.assembled is not None
    place = {a.name: n for n, a in enumerate(made.arguments)}
    return step.assembled.workload, tuple((place[v.value.name], *v.shape) for v in step.assembled.inputs)


def skipping(workload: Workload, **allowed: list[KnobValue]) -> list[Schedule]:
    space, rng = spaces.build(workload, H200, [TRITON]), np.random.default_rng(0)
    part = space.restricted("chain", **({"skip": [True]} | allowed))
    return [part.sample(rng) for _ in range(2)]


def views(function: Function, size: int, arguments: tuple[Tensor, ...]) -> list[np.ndarray]:
    _, places = traced(function, size)
    taken = (arguments[n].reshape(shape) for n, *shape in places)
    return [x.float().numpy() for x in taken]


def made_by(schedule: Schedule, function: Function, size: int, arguments: tuple[Tensor, ...]) -> Tensor:
    (made,) = interpreted(traced(function, size)[0], schedule.program, views(function, size, arguments))
    return torch.from_numpy(np.asarray(made)).reshape(1, 2, ROWS, DEPTH)


def wanted(function: Function, arguments: tuple[Tensor, ...]) -> Tensor:
    q, k, v, mask = arguments
    return function(q.double(), k.double(), v.double(), mask)


def close(got: Tensor, want: Tensor) -> None:
    # Weights of up to 1 are rounded to 11 bits, values of about 1 are, and so are results.
    torch.testing.assert_close(got.float(), want.float(), rtol=2**-9, atol=2**-9, equal_nan=True)


def loops(schedule: Schedule) -> list[For]:
    return [s for k in schedule.program.kernels for s in statements(k.body) if isinstance(s, For)]


@pytest.mark.parametrize(("function", "size"), [(expanded, 8), (repeated, 16), (fused, 32), (fused, 8)])
def test_attention_with_a_mask_in_blocks_is_one_kernel_that_may_skip_them(function: Function, size: int) -> None:
    workload, _ = traced(function, size)
    for schedule in skipping(workload):
        assert any(loop.marks for loop in loops(schedule))
        close(made_by(schedule, function, size, given(size)), wanted(function, given(size)))


def test_all_ways_to_mask_blocks_are_one_workload() -> None:
    assert len({traced(f, 16)[0].key for f in (expanded, repeated, indexed, viewed)}) == 1


def test_tiles_lie_within_blocks_of_rows_however_many_there_are() -> None:
    q, mask = torch.empty(1, 1, 8192, 64, dtype=torch.float16), torch.empty(1, 1, 128, 128, dtype=torch.bool)

    def function(q: Tensor, mask: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, q, q, attn_mask=whole(mask, 8192, 8192))

    (workload,) = trace(function, q, mask).launched
    assert all(any(loop.marks for loop in loops(schedule)) for schedule in skipping(workload, split=[1]))


def test_gradients_skip_the_blocks_that_the_function_does() -> None:
    q, k, v, mask = given(16)
    made = trace(fused, *(x.requires_grad_() for x in (q, k, v)), mask, backward=True)
    launched = (*made.forward.launched, *made.backward.launched)
    chains = [w for w in launched if any(t.dtype == "bool" for t in w.inputs)]
    assert len(chains) == 3
    for workload in chains:
        inputs = random_inputs(workload, seed=0)
        want = reference.evaluate(workload, [x.double() if x.is_floating_point() else x for x in inputs])
        for schedule in skipping(workload, split=[1]):
            got = interpreted(workload, schedule.program, [x.float() for x in inputs])
            for g, w in zip(got, want, strict=True):
                # Sums of 64 or 96 products of about 1, whose operands are rounded to 11 bits.
                torch.testing.assert_close(torch.from_numpy(g).double(), w, rtol=2**-7, atol=2**-5)


def test_blocks_may_be_skipped_or_not() -> None:
    workload, _ = traced(expanded, 16)
    (knob,) = (k for k in spaces.build(workload, H200, [TRITON]).sketch("chain").knobs if k.name == "skip")
    assert knob.values == (False, True)


@pytest.mark.parametrize("function", [expanded, causal, windowed])
@pytest.mark.parametrize("tile", [16, 32])
def test_triton_computes_the_same(triton_interpreter, function: Function, tile: int) -> None:
    workload, _ = traced(function, 32)
    schedule, *_ = skipping(workload, m=[cover(32, (16,))], c=[cover(32, (tile,))], split=[1])
    arguments = given(32)
    inputs = [arguments[n].reshape(shape).numpy() for n, *shape in traced(function, 32)[1]]
    source = TRITON.render(schedule.program, "", H200)
    (got,) = triton_interpreter.computed(source, workload, schedule.program, inputs)
    close(torch.from_numpy(np.asarray(got)).reshape(1, 2, ROWS, DEPTH), wanted(function, arguments))


def test_a_walk_that_programs_share_skips_blocks_in_each_part() -> None:
    workload = attention(2, 16, 1000, 32, scores=Scores(padding=True))
    q, k, v, kept = random_inputs(workload, seed=0)
    kept[:, 100:700] = False
    for schedule in skipping(workload, split=[3, 4], c=[cover(1000, (32,))]):
        assert len(schedule.program.kernels) == 2
        (got,) = interpreted(workload, schedule.program, [x.float() for x in (q, k, v, kept)])
        want = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), attn_mask=kept[:, None])
        close(torch.from_numpy(np.asarray(got)), want)


@pytest.mark.parametrize("function", [expanded, fused])
def test_rows_of_which_all_blocks_are_off_are_what_they_are_without_skipping(function: Function) -> None:
    q, k, v, mask = given(16)
    mask[:, 0, 1] = False
    for schedule in skipping(traced(function, 16)[0]):
        got = made_by(schedule, function, 16, (q, k, v, mask))
        close(got, wanted(function, (q, k, v, mask)))
        assert got[0, 0, 16:32].isnan().all() if function is expanded else not got[0, 0, 16:32].any()


@pytest.mark.parametrize("seen", [False, True])
def test_all_blocks_may_be_off_or_on(seen: bool) -> None:
    q, k, v, mask = given(32)
    for schedule in skipping(traced(expanded, 32)[0]):
        arguments = (q, k, v, torch.full_like(mask, seen))
        close(made_by(schedule, expanded, 32, arguments), wanted(expanded, arguments))


def test_of_blocks_that_are_off_nothing_is_loaded() -> None:
    q, k, v, mask = given(32)
    mask[..., 0], mask[..., 1] = True, False
    k[:, :, 32:64] = v[:, :, 32:64] = math.nan
    workload, _ = traced(expanded, 32)
    tiles: dict[str, list[KnobValue]] = {"m": [cover(32, (16,))], "c": [cover(32, (16,))], "split": [1]}
    for skip in (True, False):
        schedule, *_ = skipping(workload, skip=[skip], **tiles)
        # What is 0 times no number would be none.
        assert made_by(schedule, expanded, 32, (q, k, v, mask)).isnan().any() != skip


def test_within_blocks_that_are_on_scores_need_no_mask() -> None:
    workload, _ = traced(expanded, 32)
    for skip in (True, False):
        schedule, *_ = skipping(workload, skip=[skip], split=[1])
        inside = [s for loop in loops(schedule) for s in statements(loop.body)]
        assert any(isinstance(s, Map) and s.operator == "where" for s in inside) != skip


def test_of_a_mask_of_columns_those_tiles_are_skipped_of_which_no_column_is_left() -> None:
    workload = attention(2, 64, 96, 32, scores=Scores(padding=True, causal=True))
    q, k, v, kept = random_inputs(workload, seed=0)
    kept[:, 16:64] = False
    kept[:, 0] = True  # The first row sees the first column only.
    v[:, 32:64] = math.nan
    for schedule in skipping(workload, c=[cover(96, (32,))], split=[1]):
        (got,) = interpreted(workload, schedule.program, [x.float() for x in (q, k, v, kept)])
        seen = kept[:, None] & torch.ones(64, 96, dtype=torch.bool).tril(32)
        scores = (q.double() @ k.double().mT * 32**-0.5).masked_fill(~seen, -math.inf)
        close(torch.from_numpy(np.asarray(got)), (torch.softmax(scores, -1) @ v.double().nan_to_num()).float())


@pytest.mark.parametrize("function", [causal, windowed])
def test_blocks_may_be_masked_by_position_too(function: Function) -> None:
    arguments = given(16)
    for schedule in skipping(traced(function, 16)[0]):
        # The loop over blocks has all the bounds, so that the one within it makes one loop with it.
        inner = [s for loop in loops(schedule) if loop.marks for s in loop.body if isinstance(s, For)]
        assert inner
        assert all(loop.useful for loop in loops(schedule) if loop.marks)
        assert not any(loop.useful or loop.until or loop.since for loop in inner)
        close(made_by(schedule, function, 16, arguments), wanted(function, arguments))


@functools.cache
def specialized(name: str) -> Workload:
    """Attention with a mask of blocks of 64, or of columns, in tiles as warps bring them."""

    def function(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        m, c = torch.arange(128)[:, None], torch.arange(256)
        seen = mask[:, :, m // 64, c // 64]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen & (c <= m + 128) if name == "causal" else seen)

    q, k = (torch.empty(1, 2, n, 64, dtype=torch.float16) for n in (128, 256))
    if name == "padding":
        return attention(2, 128, 256, 64, scores=Scores(padding=True))
    (workload,) = trace(function, q, k, k.clone(), torch.empty(1, 2, 2, 4, dtype=torch.bool)).launched
    return workload


@pytest.mark.parametrize("name", ["blocks", "causal"])
def test_warps_that_bring_tiles_skip_blocks_too(name: str) -> None:
    workload = specialized(name)
    kinds: list[KnobValue] = ["cooperative", "pingpong"]
    inputs = random_inputs(workload, seed=0)
    inputs[3][..., 0] = True  # Every row sees something.
    for schedule in skipping(workload, specialize=kinds, m=[cover(64, (64,))], warps=[4, 8]):
        assert [loop.marks != "" for loop in loops(schedule)].count(True) == len(loops(schedule))
        (got,) = interpreted(workload, schedule.program, [x.float() for x in inputs])
        (want,) = reference.evaluate(workload, [x.double() if x.is_floating_point() else x for x in inputs])
        close(torch.from_numpy(np.asarray(got)), want)
        assert TRITON.compile(TRITON.render(schedule.program, "", H200), schedule.program, H200).binaries


@pytest.mark.parametrize(
    ("name", "values", "why"),
    [
        ("padding", {"specialize": "cooperative", "warps": 4}, "has a warp that brings tiles, of a mask that is comp"),
        ("blocks", {"specialize": "cooperative", "warps": 4, "overlap": True}, "skip may leave no iteration to begin"),
        ("blocks", {"specialize": "cooperative", "warps": 4, "c": cover(64, (32,))}, "expected tiles with all columns"),
    ],
)
def test_what_cannot_be_skipped_is_told(name: str, values: dict[str, KnobValue], why: str) -> None:
    space = spaces.build(specialized(name), H200, [TRITON])
    sketch = space.sketch("chain")
    start = next(s for s in sketch.seeds if s["walked_load"] == "descriptor" and s.tile("m") == 64)
    schedule = Schedule("chain", tuple({**start, "skip": True, "split": 1, **values}.items()), "triton")
    assert why in str(space.why_illegal(schedule))


def test_pages_beyond_a_length_that_is_read_are_skipped() -> None:
    workload = paged_attention(2, 4, 6, 16, 32, 20)
    inputs = random_inputs(workload, seed=0)
    inputs[4][:] = torch.tensor([40, 7])
    inputs[3][:, 3:] = 0  # The page that is not to be read is one of its own.
    inputs[3][:, :3].clamp_(min=1)
    inputs[2][0] = math.nan
    for schedule in skipping(workload, split=[1]):
        (got,) = interpreted(workload, schedule.program, [x.float() for x in inputs])
        inputs[2][0] = 0.0
        (want,) = reference.evaluate(workload, [x.double() if x.is_floating_point() else x for x in inputs])
        close(torch.from_numpy(np.asarray(got)), want)
        inputs[2][0] = math.nan


def test_a_mask_of_every_score_is_not_read_ahead() -> None:
    def function(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    q, k, v, mask = given(16)
    (workload,) = trace(function, q, k, v, whole(mask)).launched
    assert not any(k.name == "skip" for k in spaces.build(workload, H200, [TRITON]).sketch("chain").knobs)


def test_records_from_before_there_was_skipping_made_all_iterations() -> None:
    workload, _ = traced(expanded, 16)
    sketch = spaces.build(workload, H200, [TRITON]).sketch("chain")
    old = type(sketch.seeds[0])({k: v for k, v in sketch.seeds[0].items() if k != "skip"})
    assert sketch.completed(old)["skip"] is False


def test_a_loop_says_which_tile_marks_its_iterations() -> None:
    workload, _ = traced(expanded, 16)
    schedule, *_ = skipping(workload)
    (marks,) = {loop.marks for loop in loops(schedule) if loop.marks}
    assert f", where {marks}\n" in to_text(schedule.program)


def marked_sum(extent: int, stages: int = 0) -> TileProgram:
    """The sum of rows of x within 1 <= i < 5 that are marked."""
    marks, row, total = Tile("marks", ("i",), (8,), "bool"), Tile("row", ("n",), (4,)), Tile("total", ("n",), (4,))
    columns, i = Slice(Affine(), 4, "n"), Affine.of(("i.0", 1))
    body = (
        Load(marks, "kept", (Slice(Affine(), 8, "i"),)),
        Fill(total, 0.0),
        For(
            "i.0",
            extent,
            (Load(row, "x", (Slice(i), columns)), Map(total, "add", ("total", "row"))),
            stages,
            useful=(Bound(Affine.of(("i.0", -1)), 0),),
            until=(Bound(i, 5),),
            marks="marks",
        ),
        Store("out", (columns,), "total"),
    )
    inputs = (Buffer("x", (7, 4), "float32", "input"), Buffer("kept", (7,), "bool", "input"))
    kernel = Kernel("marked", Grid((GridAxis("p", 1),)), body)
    return TileProgram("marked", (*inputs, Buffer("out", (4,), "float32", "output")), (kernel,))


def test_of_iterations_that_are_read_to_be_made_half_are_counted() -> None:
    program = marked_sum(7)
    (kernel,) = program.kernels
    every = tuple(replace(s, marks="") if isinstance(s, For) else s for s in kernel.body)
    (counts,), (whole,) = count(program), count(replace(program, kernels=(replace(kernel, body=every),)))
    assert [trips for _, trips, _ in counts.loops] == [trips / 2 for _, trips, _ in whole.loops]


@pytest.mark.parametrize("kept", [[1] * 7, [0] * 7, [1, 1, 0, 0, 1, 1, 1]])
def test_marked_iterations_are_made_that_are_within_bounds(triton_interpreter, kept: list[int]) -> None:
    program = marked_sum(7)
    x, marks = np.arange(28, dtype=np.float32).reshape(7, 4), np.array(kept, dtype=bool)
    want = x[[i for i in range(1, 5) if kept[i]]].sum(0)
    (got,) = triton_interpreter.run_all(TRITON.render(program, "", H200), program, {"x": x, "kept": marks})
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(interpret(program, [x, marks])[0], want)


@pytest.mark.parametrize("kept", [[1] * 7, [0] * 7, [1, 1, 0, 0, 1, 1, 1]])
@pytest.mark.parametrize("stages", [0, 3])
def test_cuda_makes_marked_iterations_that_are_within_bounds(kept: list[int], stages: int, tmp_path: Path) -> None:
    program = marked_sum(7, stages)
    x, marks, out = torch.arange(28.0).reshape(7, 4), torch.tensor(kept, dtype=torch.bool), torch.empty(4)
    EmulatedProgram(program, A100, tmp_path)([x, marks, out])
    torch.testing.assert_close(out, x[[i for i in range(1, 5) if kept[i]]].sum(0))


@pytest.mark.parametrize(
    ("device", "function", "size", "tile", "stages"),
    [
        ("a100", expanded, 32, 16, 3),
        ("v100", expanded, 32, 32, 3),
        ("a100", fused, 16, 16, 1),
        ("a100", windowed, 32, 16, 2),
    ],
)
def test_cuda_computes_the_same(
    device: str, function: Function, size: int, tile: int, stages: int, tmp_path: Path
) -> None:
    target, (workload, places) = target_named(device), traced(function, size)
    space, rng = spaces.build(workload, target, [CudaBackend()]), np.random.default_rng(0)
    tiles: dict[str, list[KnobValue]] = {"m": [cover(size, (16,))], "c": [cover(SIZES[size], (tile,))]}
    part = space.restricted("chain", skip=[True], split=[1], stages=[stages], warps=[2], **tiles)
    schedule, arguments = part.sample(rng), given(size)
    inputs = [arguments[n].reshape(shape).contiguous() for n, *shape in places]
    out = torch.empty(1, 2, ROWS, DEPTH, dtype=torch.float16)
    EmulatedProgram(schedule.program, target, tmp_path)(launched_on(workload, inputs, out))
    close(out, wanted(function, arguments))
    assert CudaBackend().compile(CudaBackend().render(schedule.program, "", target), schedule.program, target).binaries


def test_what_cuda_lists_of_iterations_is_counted_in_shared_memory() -> None:
    for workload in (traced(expanded, 32)[0], attention(2, 64, 96, 32, scores=Scores(padding=True))):
        part = spaces.build(workload, A100, [CudaBackend()]).restricted("chain", skip=[True])
        for number in range(8):
            program = part.sample(np.random.default_rng(number)).program
            needed = [resources(program, kernel, A100).shared_memory_bytes for kernel in program.kernels]
            assert needed == [kernel.shared_bytes for kernel in launched(program, A100)]


def unnormalised(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    scores = ((q @ k.transpose(-1, -2)) * 0.25).masked_fill(~whole(mask), -math.inf)
    return torch.exp(scores - scores.amax(-1, keepdim=True)) @ v


def on_cpu(function: Function, size: int, **allowed: list[KnobValue]) -> tuple[Workload, Schedule]:
    """The kernel that a function is on a CPU, and a schedule that skips what its mask rules out."""
    (workload,) = trace(function, *floats(given(size))).for_target(CPU).workloads
    space = spaces.build(workload, CPU).restricted("chain", **({"skip": [True]} | allowed))
    return workload, space.sample(np.random.default_rng(0))


def floats(arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(x.float() if x.is_floating_point() else x for x in arguments)


def made_on_a_cpu(function: Function, schedule: Schedule, arguments: tuple[Tensor, ...]) -> list[Tensor]:
    """The kernel's results, and the interpreter's of its program."""
    traced = trace(function, *arguments).for_target(CPU)
    (workload,), (step,) = traced.workloads, traced.steps
    assert step.assembled is not None
    place = {a.name: n for n, a in enumerate(traced.arguments)}
    inputs = [arguments[place[v.value.name]].reshape(v.shape).contiguous() for v in step.assembled.inputs]
    (meant,) = interpreted(workload, schedule.program, inputs)
    return [
        x.reshape(1, 2, ROWS, DEPTH) for x in (untuned_kernel(schedule, workload, CPU)(*inputs), torch.tensor(meant))
    ]


@pytest.mark.parametrize("function", [expanded, fused, causal, windowed, unnormalised])
def test_a_cpu_skips_blocks_too(function: Function) -> None:
    q, k, v, mask = floats(given(32))
    mask[0] = torch.tensor([[[True, False, True], [False, False, True]], [[False, True, False], [False] * 3]])
    k[0, 1, :32] = v[0, 1, :32] = math.nan  # Nothing of the second head sees these.
    _, schedule = on_cpu(function, 32)
    want = function(q.double(), k.double().nan_to_num(), v.double().nan_to_num(), mask)
    for got in made_on_a_cpu(function, schedule, (q, k, v, mask)):
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_a_cpu_skips_pieces_of_which_no_column_is_left() -> None:
    workload = attention(3, 32, 128, 16, "float32", scores=Scores(padding=True, causal=True))
    q, k, v, kept = random_inputs(workload, seed=0)
    kept[:] = False
    kept[0, 40:50] = kept[0, 127] = kept[1, 0] = True
    v[0, :32] = v[0, 64:96] = v[1, 32:] = k[1, 32:] = math.nan
    part = spaces.build(workload, CPU).restricted("chain", skip=[True], c=[(4, 32)])
    schedule = part.sample(np.random.default_rng(0))
    seen = kept[:, None] & torch.ones(32, 128, dtype=torch.bool).tril(96)
    scores = (q.double() @ k.double().nan_to_num().mT * 16**-0.5).masked_fill(~seen, -math.inf)
    want = torch.softmax(scores, -1) @ v.double().nan_to_num()
    (meant,) = interpreted(workload, schedule.program, (q, k, v, kept))
    for got in (untuned_kernel(schedule, workload, CPU)(q, k, v, kept), torch.from_numpy(meant)):
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_on_a_cpu_too_one_piece_is_not_skipped_and_register_tiles_end_with_pieces() -> None:
    workload = attention(1, 32, 128, 16, "float32", scores=Scores(padding=True))
    space = spaces.build(workload, CPU)
    start = space.sketch("chain").seeds[0]
    whole = Schedule("chain", tuple({**start, "skip": True, "c": (1, 128)}.items()), "llvm")
    assert "a tile holds all that is walked" in str(space.why_illegal(whole))
    short = {**start, "skip": True, "c": (4, 32), "inner_register": (4, 64)}
    assert "do not divide pieces of 32" in str(space.why_illegal(replace(whole, values=tuple(short.items()))))


def test_a_cpu_reads_what_marks_iterations_where_it_lies() -> None:
    program = marked_sum(7)
    (kernel,) = program.kernels
    load, *rest = kernel.body
    assert isinstance(load, Load)
    body = (load, Map(replace(load.dst, name="more"), "mul", ("marks", "marks")), *rest)
    loops = tuple(replace(s, until=(), marks="more") if isinstance(s, For) else s for s in body)
    with pytest.raises(
        CompileError, match="more marks iterations of a loop, and is computed; expected a tile that is l"
    ):
        LlvmBackend().render(replace(program, kernels=(replace(kernel, body=loops),)), "", CPU)
