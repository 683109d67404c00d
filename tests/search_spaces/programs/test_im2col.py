"""Im2col descriptors read what loads say: pixels are followed as the hardware does, from coordinates and corners."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from scheduled_tensors import given_back, taken
from search_spaces import Schedule, Workload
from search_spaces.devices.architectures import TMA
from search_spaces.programs.im2col import Im2colTile, im2col_tile
from search_spaces.programs.interpreting.interpreter import OneProgram, interpret, run_kernel
from search_spaces.programs.roles.halves import BLOCK, HALF
from search_spaces.programs.statements import Load
from search_spaces.programs.tile_program import Kernel, TileProgram, loop_extents
from windows import WINDOWS, drawn

every = pytest.mark.parametrize("name", WINDOWS)


def pixels(tile: Im2colTile, first: list[int], taps: list[int]) -> Iterator[tuple[list[int], bool]]:
    """Index of every pixel in images and lines, and true where it is inside."""
    image, *at = first
    for _ in range(tile.pixels):
        index = [image, *(a + t for a, t in zip(at, taps, strict=True))]
        yield index, all(0 <= i < n for i, n in zip(index, tile.shape, strict=False))
        for line in reversed(range(len(at))):
            at[line] += tile.steps[line]
            if at[line] <= tile.shape[1 + line] - 1 + tile.upper[line]:
                break
            at[line] = tile.lower[line]
        else:
            image += 1


def copied(program: OneProgram, tile: Im2colTile, memory: np.ndarray) -> np.ndarray:
    """The tile as the hardware copies it, from tensors that lie dense in `memory`."""

    def value(at: int) -> int:
        place = tile.first[at]
        digit = place.digit.of(place.digit.start.evaluate(program.variables)) if place.digit else 0
        return place.start.evaluate(program.variables) + place.step * digit

    *first, channel = map(value, range(len(tile.first)))
    taps = [t.evaluate(program.variables) for t in tile.taps]
    assert all(0 <= t < 2 ** (16 // len(taps)) for t in taps)
    found = np.zeros((tile.pixels, tile.channels), memory.dtype)
    there = min(tile.channels, tile.shape[-1] - channel)
    for row, (index, inside) in enumerate(pixels(tile, first, taps)):
        if inside:
            start = sum(i * s for i, s in zip(index, tile.strides, strict=False)) + channel
            found[row, :there] = memory.reshape(-1)[start : start + there]
    return found


class AsHardware:
    """Runs kernels with im2col loads as descriptors make them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loads, self.patch, self.plain = 0, monkeypatch, OneProgram._load

    def __call__(self, kernel: Kernel, program: TileProgram, memory: dict[str, np.ndarray]) -> None:
        with self.patched(kernel, program):
            run_kernel(kernel, program, memory)

    def patched(self, kernel: Kernel, program: TileProgram):
        extents = loop_extents(kernel) | {HALF: 4, BLOCK: kernel.launch.num_ctas}

        def load(one: OneProgram, s: Load) -> None:
            if s.via != "im2col":
                self.plain(one, s)
                return
            self.loads += 1
            tile = im2col_tile(program.buffer(s.buffer), s, extents, TMA)
            values = copied(one, tile, one.memory[s.buffer])
            one.set(s.dst, values.reshape(s.dst.shape))

        context = self.patch.context()

        class _Patched:
            def __enter__(self) -> None:
                context.__enter__().setattr(OneProgram, "_load", load)

            def __exit__(self, *error: object) -> None:
                context.__exit__(*error)

        return _Patched()


def assert_right(workload: Workload, program: TileProgram, results, inputs, schedule: Schedule) -> None:
    for value, expected in zip(given_back(workload, program, results), expect(workload, inputs), strict=True):
        assert error_ratio(torch.from_numpy(value), expected) <= 1, schedule.one_line


@every
def test_descriptors_copy_what_the_workload_reads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    workload, run = WINDOWS[name], AsHardware(monkeypatch)
    inputs = random_inputs(workload, seed=3)
    for schedule in drawn(workload, 3):
        given = taken(workload, schedule.program, [x.double() for x in inputs])
        assert_right(workload, schedule.program, interpret(schedule.program, given, run), inputs, schedule)
    assert run.loads
