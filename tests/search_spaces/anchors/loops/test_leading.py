"""The number of leading positions is right at every size and for every number of them."""

from __future__ import annotations

import numpy as np
import pytest

from search_spaces.anchors.loops.leading import count_leading
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.interpreting.interpreter import interpret
from search_spaces.programs.lowering import Emitter
from search_spaces.programs.statements import Let, Position, Store
from search_spaces.programs.tile_program import Buffer, Kernel, TileProgram
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, call
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis

# Of so many sorted numbers below 40, how many are at most p, for every p below 40.
LIMITS = 40


def counting(size: int) -> TileProgram:
    e = Emitter({}, {"x": "int32"}, Names())
    limit = Tile("limit", (), (), "int64")
    e.body.append(Position(limit, Slice(axis_index("p"))))
    element = call("to_integer", Access("x", (axis_index("g"),)))
    number = count_leading(
        e, Axis("g", size), lambda inner, at: inner.map("le", inner.tile(element, "x"), limit, compared="int64")
    )
    e.body.append(Store("out", (Slice(axis_index("p")),), number.name))
    buffers = (Buffer("x", (size,), "int32", "input"), Buffer("out", (LIMITS,), "int64", "output"))
    kernel = Kernel("counting", Grid((GridAxis("p", LIMITS),)), tuple(e.body))
    return TileProgram("counting", buffers, (kernel,))


@pytest.mark.parametrize("size", [1, 2, 3, 255, 256, 257, 5000, 70000])
def test_all_that_lead_are_counted(size: int) -> None:
    rng = np.random.default_rng(size)
    for x in (np.sort(rng.integers(0, LIMITS + 5, size)), np.zeros(size), np.full(size, LIMITS)):
        (got,) = interpret(counting(size), [x.astype(np.int32)])
        np.testing.assert_array_equal(got, np.searchsorted(x, np.arange(LIMITS), side="right"))


def test_a_program_waits_for_few_reads() -> None:
    (kernel,) = counting(4096).kernels
    assert sum(isinstance(s, Let) for s in kernel.body) == 1
