"""What every field of a tile program means and how it is shown, on programs written by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.interpreting.interpreter import interpret
from search_spaces.programs.statements import If, Load, Store
from search_spaces.programs.text import to_text
from search_spaces.programs.tile_program import Buffer, Kernel, Launch, TileProgram
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.workloads.expressions.affine import Affine

WHERE = (Slice(Affine(), 4, "i"),)
TILE = Tile("t", ("i",), (4,))
LOAD, STORE, LAUNCH = Load(TILE, "x", WHERE), Store("out", WHERE, "t"), Launch()


def program(load: Load = LOAD, store: Store = STORE, launch: Launch = LAUNCH, **rest: tuple[str, ...]) -> TileProgram:
    """out = x, done by three programs of the grid after each other."""
    buffers = (Buffer("x", (4,), "float32", "input"), Buffer("out", (4,), "float32", "output"))
    kernel = Kernel("copy", Grid((GridAxis("s", 3),)), (load, store), launch)
    return TileProgram("copy", buffers, (kernel,), **rest)


def test_a_program_is_shown_as_a_loop_nest() -> None:
    assert to_text(program()).splitlines() == [
        "kernel copy: grid s in 3  [warps 4, stages 1]",
        "  t: (i 4) float32 = load x[0 : +4]",
        "  store out[0 : +4] = t",
    ]


def test_a_branch_with_nothing_to_do_is_not_shown() -> None:
    (kernel,) = program().kernels
    only_else, both = If("s", 0, (), (STORE,)), If("s", 0, (STORE,), (STORE,))
    shown = to_text(dataclasses.replace(program(), kernels=(dataclasses.replace(kernel, body=(LOAD, only_else)),)))
    assert shown.splitlines()[2:] == ["  if s != 0:", "    store out[0 : +4] = t"]
    shown = to_text(dataclasses.replace(program(), kernels=(dataclasses.replace(kernel, body=(LOAD, both)),)))
    assert [line.strip() for line in shown.splitlines()[2:]] == [
        "if s == 0:",
        "store out[0 : +4] = t",
        "else:",
        "store out[0 : +4] = t",
    ]


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        (program(load=dataclasses.replace(LOAD, eviction="evict_first")), "load x[0 : +4]  (evict_first)"),
        (program(load=dataclasses.replace(LOAD, via="descriptor")), "load x[0 : +4]  (descriptor)"),
        (program(store=dataclasses.replace(STORE, atomic=True)), "store out[0 : +4] = t  (atomic add)"),
        (program(store=dataclasses.replace(STORE, streaming=True)), "store out[0 : +4] = t  (streaming)"),
        (program(launch=Launch(num_ctas=2)), "[warps 4, stages 1, cluster 2]"),
        (program(launch=Launch(max_registers=128)), "[warps 4, stages 1, registers ≤ 128]"),
        (program(zeroed=("out",)), "zero out\nkernel copy"),
    ],
    ids=["eviction", "descriptor", "atomic", "streaming", "cluster", "register cap", "zeroed"],
)
def test_what_sets_a_program_apart_is_shown(changed: TileProgram, shown: str) -> None:
    assert shown in to_text(changed)
    assert shown not in to_text(program())


def test_atomic_stores_add_to_what_is_there() -> None:
    x = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    summed = program(store=dataclasses.replace(STORE, atomic=True), zeroed=("out",))
    np.testing.assert_array_equal(interpret(program(), [x])[0], x)
    np.testing.assert_array_equal(interpret(summed, [x])[0], 3 * x)


def test_only_a_zeroed_output_begins_as_zeros() -> None:
    half = dataclasses.replace(STORE, slices=(Slice(Affine(), 2, "i"),), src="h")
    load = Load(Tile("h", ("i",), (2,)), "x", (Slice(Affine(), 2, "i"),))
    x = np.ones(4, np.float32)
    np.testing.assert_array_equal(interpret(program(load, half), [x])[0], [1, 1, np.nan, np.nan])
    np.testing.assert_array_equal(interpret(program(load, half, zeroed=("out",)), [x])[0], [1, 1, 0, 0])


@pytest.mark.parametrize(
    "same",
    [
        program(load=dataclasses.replace(LOAD, eviction="evict_last")),
        program(launch=Launch(num_ctas=4)),
        program(launch=Launch(max_registers=32)),
    ],
    ids=["eviction", "cluster", "register cap"],
)
def test_hints_change_nothing_that_is_computed(same: TileProgram) -> None:
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(interpret(same, [x])[0], x)
