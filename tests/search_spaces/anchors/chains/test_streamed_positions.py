"""Values at the points of a streamed axis: computed from positions, rounded, and as powers of two."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import autosched
import best_spaces
from autosched.checking.random_inputs import random_inputs
from chained_kernels import H200, TRITON, masked, walks, with_tiles, worst
from chained_workloads import Scores, attention
from scheduled_tensors import interpreted
from search_spaces import Schedule, Workload
from search_spaces.anchors.chains.streamed_positions import integral_differences
from search_spaces.programs.grid import Grid
from search_spaces.programs.statements import For, Map
from search_spaces.programs.statements import Position as PositionOf
from search_spaces.programs.tile_program import Kernel, TileProgram
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.structure.reads.intervals import interval
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Literal, Position, call, div, mul, sub

SLOPES = attention(2, 64, 96, 32, scores=Scores(slopes=True))


def biased(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """A bias for every head by distance, rounded as the queries are."""
    rows, columns = torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])
    slopes = torch.exp2(-(torch.arange(q.shape[1]) + 1) * 8 / q.shape[1])
    scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    return torch.softmax(scores + (slopes[:, None, None] * (columns - rows)).to(q.dtype), -1) @ v


@pytest.fixture(scope="module")
def workload() -> Workload:
    tensors = [torch.empty(1, 4, 64, 32, dtype=torch.bfloat16)] * 3
    (workload,) = autosched.trace(biased, *tensors).workloads
    return workload


def unspecialised(workload: Workload) -> Schedule:
    part = best_spaces.build(workload, H200).restricted("chain", specialize=["none"], c=[(2, 32)])
    return part.sample(np.random.default_rng(0))


def maps(loop: For) -> list[Map]:
    return [s for s in loop.body if isinstance(s, Map)]


def test_differences_of_positions_are_integers() -> None:
    (loop,) = walks(with_tiles(SLOPES, 32, 32))
    (difference,) = [s.dst.name for s in maps(loop) if s.dst.dtype == "int32" and len(s.dst.axes) == 2]
    (converted,) = [s for s in maps(loop) if difference in s.arguments]
    assert (converted.operator, converted.dst.dtype) == ("cast", "float32")


def test_differences_of_positions_are_right() -> None:
    inputs = random_inputs(SLOPES, seed=0)
    got = interpreted(SLOPES, with_tiles(SLOPES, 32, 32).program, [x.float() for x in inputs])
    assert worst(SLOPES, inputs, got) <= 1


def test_what_is_compared_stays_as_it_is() -> None:
    loops = walks(with_tiles(attention(1, 128, 128, 32, scores=Scores(causal=True, window=20)), 32, 16))
    assert not any(s.dst.dtype == "int32" for loop in loops for s in maps(loop))


def test_a_rounded_bias_is_rounded_in_pairs(workload: Workload) -> None:
    (loop,) = walks(unspecialised(workload))
    assert [s.operator for s in maps(loop)].count("round_bfloat16") == 1


def test_scores_with_a_bias_of_positions_are_exponents_of_two(workload: Workload) -> None:
    operators = [s.operator for s in maps(walks(unspecialised(workload))[0])]
    assert "exp2_normal" in operators
    assert "exp" not in operators


def test_a_bias_of_positions_is_right(workload: Workload) -> None:
    inputs = random_inputs(workload, seed=0)
    got = interpreted(workload, unspecialised(workload).program, [x.float() for x in inputs])
    assert worst(workload, inputs, got) <= 1


def test_a_specialised_kernel_with_such_a_bias_compiles() -> None:
    tensors = [torch.empty(1, 4, 512, 64, dtype=torch.bfloat16)] * 3
    (workload,) = autosched.trace(biased, *tensors).workloads
    schedule = next(s for s in best_spaces.build(workload, H200).seeds() if s.knobs["specialize"] == "pingpong")
    artefact = TRITON.compile(TRITON.render(schedule.program, "", H200), schedule.program, H200)
    assert artefact.facts.spill_bytes == 0


def test_of_a_window_wider_than_a_tile_no_tile_has_both_ends() -> None:
    def compared(window: int) -> list[int]:
        loops = walks(with_tiles(attention(1, 256, 256, 32, scores=Scores(causal=True, window=window)), 32, 16))
        assert [masked(loop) for loop in loops] == [True, False, True]
        return [sum(s.operator in ("lt", "le") for s in maps(loop)) for loop in loops]

    assert compared(100) == [1, 0, 1]
    assert compared(20) == [2, 0, 2]


@pytest.mark.parametrize("window", [40, 100])
def test_windows_are_right_whether_or_not_a_tile_has_both_ends(window: int) -> None:
    workload = attention(1, 256, 256, 32, scores=Scores(causal=True, window=window))
    inputs = random_inputs(workload, seed=0)
    for m, c in ((32, 16), (16, 32), (16, 16)):
        got = interpreted(workload, with_tiles(workload, m, c).program, [x.float() for x in inputs])
        assert worst(workload, inputs, got) <= 1, (m, c)


def test_what_is_computed_of_positions_has_bounds() -> None:
    head, extents = Position(axis_index("h")), {"h": 16}
    assert interval(call("exp2", div(mul(call("neg", head), Literal(8.0)), Literal(16.0))), extents) == (2.0**-7.5, 1.0)
    assert interval(sub(Literal(1.0), head), extents) == (-14.0, 1.0)
    assert interval(call("exp", mul(head, head)), extents) == (1.0, np.exp(225.0))
    assert interval(call("exp2", mul(head, Literal(1000.0))), extents) is None
    assert interval(mul(head, Access("x", (axis_index("h"),))), extents) is None
    assert interval(div(Literal(1.0), head), extents) is None
    assert interval(mul(head, Literal(np.inf)), extents) is None


def test_what_a_large_number_masks_keeps_its_exponentials() -> None:
    """Of a row with nothing else the maximum is that number, and rounded as an exponent of two."""

    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.softmax((q @ k.transpose(-1, -2)).masked_fill(mask, -1e9), -1) @ v

    tensors = [torch.empty(1, 4, 64, 32, dtype=torch.bfloat16)] * 3
    (workload,) = autosched.trace(function, *tensors, torch.empty(64, 64, dtype=torch.bool)).workloads
    operators = [s.operator for s in maps(walks(unspecialised(workload))[0])]
    assert "exp" in operators
    assert "exp2_normal" not in operators


def test_positions_that_float32_rounds_stay_as_they_are() -> None:
    def kernel(first: int) -> Kernel:
        axes = {"m": 16, "c": 16}
        at = {x: Tile(f"at_{x}", (x,), (n,)) for x, n in axes.items()}
        far = Map(Tile("far", ("m", "c"), (16, 16)), "sub", ("at_m", "at_c"))
        read = Map(Tile("y", ("m", "c"), (16, 16)), "exp", ("far",))
        body = (
            PositionOf(at["m"], Slice(Affine(offset=first), 16, "m")),
            PositionOf(at["c"], Slice(Affine.of(("c.0", 16)), 16, "c")),
            far,
            read,
        )
        return Kernel("k", Grid(()), (For("c.0", 4, body),))

    for first in (2**25, -(2**25)):
        program = TileProgram("k", (), (kernel(first),))
        assert integral_differences(program) == program
    near = TileProgram("k", (), (kernel(-64),))
    assert integral_differences(near) != near
