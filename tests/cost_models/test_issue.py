"""Instructions of maps and reductions on a GPU, and what follows for products of narrow operands."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autosched.backends import spaces
from autosched.backends.cuda.backend import CudaBackend
from cost_models import issue
from cost_models.program_counts import count
from cost_models.reuse import Nest
from cost_models.roofline import latency_s
from search_spaces import ops, target_named
from search_spaces.programs.statements import Dot, Load, Map, Reduce
from search_spaces.programs.tiles import Tile

H200, CUDA = target_named("h200"), CudaBackend()


def tile(name: str, dtype: str) -> Tile:
    return Tile(name, ("m", "k"), (4, 128), dtype)


TILES = {x: tile(x, x) for x in ("uint8", "int8", "int32", "int64", "float32", "bfloat16")}


def cost(operator: str, *arguments: str | float, dtype: str = "float32") -> float:
    return issue.of_map(Map(tile("made", dtype), operator, arguments), TILES)


def test_integers_and_conversions_take_longer_than_floats_and_wide_ones_longer_still() -> None:
    assert cost("add", "float32", 1.0) < cost("add", "int32", 1, dtype="int32") < cost("add", "int64", 1, dtype="int64")
    assert cost("cast", "int32") < cost("cast", "int64")
    assert cost("cast", "uint8", dtype="int32") == 0.0
    assert cost("mul", "int8", 2.0) == cost("mul", "float32", 2.0) + cost("cast", "int8")


def test_lanes_exchange_what_they_fold_along_the_axis_of_their_vectors() -> None:
    src = tile("float32", "float32")

    def folded(axis: str, has_dots: bool = False) -> float:
        dst = Tile("dst", tuple(x for x in src.axes if x != axis), (src.elements // src.extent(axis),))
        return issue.of_reduction(Reduce(dst, src.name, axis, "sum"), src, has_dots)

    assert folded("m") == src.elements < folded("k", has_dots=True) < folded("k")


def test_operands_of_dots_from_memory_are_made_in_pairs() -> None:
    made = (
        Load(tile("q", "int8"), "b", ()),
        Map(tile("t", "float32"), "cast", ("q",)),
        Map(tile("columns", "bfloat16"), "cast", ("t",)),
        Map(tile("other", "float32"), "cast", ("q",)),
    )
    dot = Dot(Tile("acc", ("m", "n"), (4, 8)), "columns", "rows", "k", from_memory=True)
    assert issue.in_pairs((*made, dot)).keys() == {"t", "columns"}
    assert issue.in_pairs(made) == {}
    assert issue.in_pairs((*made, replace(dot, from_memory=False)), has_roles=True) == issue.in_pairs((*made, dot))
    assert issue.in_pairs((*made, replace(dot, from_memory=False))) == {}


def test_positions_in_two_digits_are_neighbours_in_memory() -> None:
    """A byte's two values, which alternate along k: x is read in rows of 64 as it lies."""
    workload = ops.matmul(2048, 4096, 4096, "bfloat16", layout="nt", b_dtype="int4", group=128)
    start = spaces.build(workload, H200, [CUDA]).seeds()[0]
    assert "k_axes=interleaved" in start.one_line
    (kernel,) = count(start.program)
    assert next(x.run_bytes for x in kernel.loads if x.statement.buffer == "in0") == 2 * 64
    assert latency_s(start.program, H200, CUDA.limits) < 1.2e-4


@pytest.mark.parametrize(("m", "b_dtype"), [(1, "int4"), (64, "int4"), (1, "int8")])
def test_the_estimate_prefers_narrow_weights_in_registers_streamed_for_few_rows(m: int, b_dtype: str) -> None:
    product = ops.matmul(m, 8192, 8192, "bfloat16", layout="nt", b_dtype=b_dtype, group=128, constant="b")
    space = spaces.build(product, H200, [CUDA])
    fastest = min(space.seeds(), key=lambda s: latency_s(s.program, H200, CUDA.limits))
    assert fastest.sketch == "streamed_contraction" if m == 1 else "k_axes=interleaved" in fastest.one_line


def test_programs_that_share_several_reduced_axes_read_every_byte_once() -> None:
    product = ops.matmul(1, 512, 2048, "bfloat16", layout="nt", b_dtype="int8", group=128, constant="b")
    space, rng = spaces.build(product, H200, [CUDA]).restricted("thin_contraction"), np.random.default_rng(0)
    split = next(s for s in (space.sample(rng) for _ in range(1000)) if s.knobs.integer("split") > 1)
    read = Nest(count(split.program)[0]).device_memory_bytes(H200.num_sms, H200.l2_bytes)
    assert read >= 512 * 2048
