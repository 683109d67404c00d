"""Variables that are bound to data: what programs with them compute, by every backend that runs here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from autosched.backends.llvm.backend import LlvmBackend
from autosched.backends.triton.source import print_module
from autosched.machine import devices
from cuda_on_cpu import EmulatedProgram
from search_spaces import target_named
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.interpreting.interpreter import interpret
from search_spaces.programs.statements import Fill, For, Let, Load, Map, Store
from search_spaces.programs.text import to_text
from search_spaces.programs.tile_program import Buffer, Kernel, TileProgram
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.workloads.expressions.affine import Affine, axis_index

RUNS, LONG, TURNS, COLUMNS = 3, 40, 4, 8
FIRSTS = LONG - COLUMNS + 1


def sums_of_runs() -> TileProgram:
    """out[g] = the sum of the runs of eight numbers of x that begin where the data says, and x of the last one again.

    The last of the runs begins at a place that is bound outside of the loop.
    """
    at, number = Tile("at", (), (), "int64"), Tile("number", (), (), "int64")
    total, run = Tile("total", ("i",), (COLUMNS,)), Tile("run", ("i",), (COLUMNS,))
    of_g, along = Slice(axis_index("g")), Slice(Affine(), COLUMNS, "i")

    def added(variable: str) -> tuple[Any, ...]:
        begin = Slice(axis_index(variable), COLUMNS, "i")
        return Load(run, "x", (begin,)), Map(total, "add", ("total", "run"))

    turns = (Load(at, "starts", (of_g, Slice(axis_index("j")))), Let("first", FIRSTS, "at"), *added("first"))
    last = (Load(number, "starts", (of_g, Slice(Affine(offset=TURNS - 1)))), Let("last", FIRSTS, "number"))
    body = (*last, Fill(total, 0.0), For("j", TURNS, turns), *added("last"), Store("out", (of_g, along), "total"))
    buffers = (
        Buffer("x", (LONG,), "float32", "input"),
        Buffer("starts", (RUNS, TURNS), "int64", "input"),
        Buffer("out", (RUNS, COLUMNS), "float32", "output"),
    )
    return TileProgram("runs", buffers, (Kernel("runs", Grid((GridAxis("g", RUNS),)), body),))


PROGRAM = sums_of_runs()
X = np.arange(LONG, dtype=np.float32) ** 2
# Places before and after the buffer are the nearest ones in it.
STARTS = np.array([[0, 1, 32, 7], [-1, 33, 2**40, 5], [-(2**40), 3, 3, 99]])
EXPECTED = np.stack(
    [sum(X[p : p + COLUMNS] for p in (*row, row[-1])) for row in np.clip(STARTS, 0, FIRSTS - 1)], dtype=np.float32
)


def test_the_interpreter_reads_from_the_nearest_places() -> None:
    np.testing.assert_array_equal(interpret(PROGRAM, [X, STARTS])[0], EXPECTED)
    assert "let first in 33 = at" in to_text(PROGRAM)


def test_triton_does(triton_interpreter: Any) -> None:
    source = print_module(PROGRAM, "")
    np.testing.assert_array_equal(triton_interpreter.run(source, PROGRAM, {"x": X, "starts": STARTS}), EXPECTED)


def test_cuda_does(tmp_path: Path) -> None:
    out = torch.full((RUNS, COLUMNS), torch.nan)
    EmulatedProgram(PROGRAM, target_named("a100"), tmp_path)([torch.from_numpy(X), torch.from_numpy(STARTS), out])
    np.testing.assert_array_equal(out.numpy(), EXPECTED)


def test_a_cpu_does() -> None:
    backend, here = LlvmBackend(), devices.cpu_target()
    launcher = backend.load(backend.compile(backend.render(PROGRAM, "", here), PROGRAM, here), PROGRAM)
    out = torch.full((RUNS, COLUMNS), torch.nan)
    launcher([torch.from_numpy(X), torch.from_numpy(STARTS), out])
    launcher.unload()
    np.testing.assert_array_equal(out.numpy(), EXPECTED)
