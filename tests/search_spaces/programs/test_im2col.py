"""Im2col descriptors copy what loads say: pixels are followed as the hardware does, from coordinates and corners."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from autosched.backends.cuda.hopper.plan import OFFERS
from autosched.backends.gpu.warps import WGMMA
from autosched.checking.correctness import error_ratio, expect
from autosched.checking.random_inputs import random_inputs
from convolutions import convolution
from scheduled_tensors import given_back, taken
from search_spaces import Schedule, Workload
from search_spaces.devices.architectures import TMA
from search_spaces.programs.im2col import Im2colTile, im2col_tile, why_no_im2col
from search_spaces.programs.interpreting.interpreter import OneProgram, Run, interpret, run_kernel
from search_spaces.programs.interpreting.roles import RunRoles, why_unsound
from search_spaces.programs.roles.halves import BLOCK, HALF
from search_spaces.programs.roles.making import roles_of
from search_spaces.programs.roles.statements import Roles
from search_spaces.programs.statements import Load
from search_spaces.programs.tile_program import Buffer, Kernel, TileProgram, loop_extents
from search_spaces.programs.tiles import Flat, Slice, Tile
from search_spaces.workloads.expressions.affine import Affine
from windows import WINDOWS, drawn

every = pytest.mark.parametrize("name", WINDOWS)
SHARES: dict[str, dict[str, Any]] = {
    "cooperative": {"specialize": ("cooperative",)},
    "pingpong": {"specialize": ("pingpong",)},
    "a cluster": {"ctas": (2,)},
    "a cluster that shares pixels": {"ctas": (2,), "swap": (True,), "m": ((1, 64),), "n": ((1, 128),)},
    "split": {"split": (2,)},
}


def pixels(tile: Im2colTile, first: list[int], taps: list[int]) -> Iterator[tuple[list[int], bool]]:
    """Index of every pixel in images and lines, and true where it is inside."""
    image, *at = first
    lower, steps = tile.lower, tile.steps
    last = [n - 1 + upper for n, upper in zip(tile.shape[1:], tile.upper, strict=False)]
    for _ in range(tile.pixels):
        index = [image, *(a + t for a, t in zip(at, taps, strict=True))]
        yield index, all(0 <= i < n for i, n in zip(index, tile.shape, strict=False))
        for line in reversed(range(len(at))):
            at[line] += steps[line]
            if at[line] <= last[line]:
                break
            at[line] = lower[line]
        else:
            image += 1


def copied(tile: Im2colTile, variables: dict[str, int], memory: np.ndarray) -> np.ndarray:
    """The tile as the hardware copies it, from a tensor that lies dense in memory."""

    def value(at: int) -> int:
        place = tile.first[at]
        digit = place.digit.of(place.digit.start.evaluate(variables)) if place.digit else 0
        return place.start.evaluate(variables) + place.step * digit

    *first, channel = map(value, range(len(tile.first)))
    taps = [t.evaluate(variables) for t in tile.taps]
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
        self.loads, self._extents, self._plain = 0, dict[str, int](), OneProgram._load
        monkeypatch.setattr(OneProgram, "_load", lambda one, s: self._load(one, s))

    def by(self, run: Run) -> Run:
        def run_one(kernel: Kernel, program: TileProgram, memory: dict[str, np.ndarray]) -> None:
            self._extents = loop_extents(kernel) | {HALF: 4, BLOCK: kernel.launch.num_ctas}
            run(kernel, program, memory)

        return run_one

    def _load(self, one: OneProgram, s: Load) -> None:
        if s.via != "im2col":
            self._plain(one, s)
            return
        self.loads += 1
        tile = im2col_tile(one.places[id(s)].buffer, s, self._extents, TMA)
        one.set(s.dst, copied(tile, one.variables, one.memory[s.buffer]))


def assert_right(workload: Workload, schedule: Schedule, run: Run) -> None:
    inputs = random_inputs(workload, seed=3)
    results = interpret(schedule.program, taken(workload, schedule.program, [x.double() for x in inputs]), run)
    for value, expected in zip(given_back(workload, schedule.program, results), expect(workload, inputs), strict=True):
        assert error_ratio(torch.from_numpy(value), expected) <= 1, schedule.one_line


@every
def test_descriptors_copy_what_the_workload_reads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hardware = AsHardware(monkeypatch)
    for schedule in drawn(WINDOWS[name], 2):
        assert_right(WINDOWS[name], schedule, hardware.by(run_kernel))
    assert hardware.loads


@pytest.mark.parametrize("share", SHARES)
def test_producers_and_consumers_compute_windows(share: str, monkeypatch: pytest.MonkeyPatch) -> None:
    workload, rng = (
        convolution((10, 9), (3, 3), 64, 128, batch=3, padding=1, dtype="bfloat16"),
        np.random.default_rng(0),
    )
    (schedule,) = drawn(workload, 1, **SHARES[share])

    def made(kernel: Kernel) -> Roles | None:
        return roles_of(kernel, WGMMA, OFFERS) if kernel.launch.producer_warps else None

    hardware = AsHardware(monkeypatch)
    assert_right(workload, schedule, hardware.by(RunRoles(made, rng)))
    assert hardware.loads
    first = made(schedule.program.kernels[0])
    assert first is not None
    assert why_unsound(first, rng) is None


# x[n, 2*p + r - 1, 2*q + s - 1, c] of 4 images of 12 x 10 of 64 channels, and 6 x 5 positions.
X = Buffer("x", (4, 12, 10, 64), "float16", "input")
EXTENTS = {"m.0": 4, "r.0": 3, "s.0": 3, "c.0": 2}
NUMBER = Affine.of(("m.0", 32))


def window(divisor: int, size: int, tap: str, step: int = 2, before: int = 1) -> Slice:
    return Slice(Affine.of((tap, 1), offset=-before), 32, "m", step=step, flat=Flat(NUMBER, divisor, size))


IMAGE, ROW, COLUMN = Slice(Affine(), 32, "m", flat=Flat(NUMBER, 30)), window(5, 6, "r.0"), window(1, 5, "s.0")
CHANNEL = Slice(Affine.of(("c.0", 32)), 32, "c")
LOAD = Load(Tile("x", ("m", "c"), (32, 32), "float16"), "x", (IMAGE, ROW, COLUMN, CHANNEL), guarded=True)


def changed(*slices: Slice, **fields: Any) -> Load:
    return replace(LOAD, slices=slices or LOAD.slices, **fields)


def test_a_tile_has_corners_and_steps_of_first_taps() -> None:
    tile = im2col_tile(X, LOAD, EXTENTS, TMA)
    assert (tile.lower, tile.upper, tile.steps) == ((-1, -1), (9 - 11, 7 - 9), (2, 2))
    assert [str(t) for t in tile.taps] == ["r.0", "s.0"]
    assert tile.shape == X.shape


def test_taps_that_go_back_count_from_the_last_one() -> None:
    """As windows of gradients to images do."""
    back = Slice(Affine.of(("s.0", -2), offset=1), 32, "m", flat=Flat(NUMBER, 1, 5))
    tile = im2col_tile(X, changed(IMAGE, ROW, back, CHANNEL), EXTENTS, TMA)
    assert (tile.lower[1], str(tile.taps[1])) == (-3, "s.0*-2 + 4")


def test_one_image_has_a_dimension_of_images_too() -> None:
    one, row = replace(X, shape=(12, 10, 64)), replace(ROW, flat=Flat(NUMBER, 5, 6))
    tile = im2col_tile(one, changed(row, COLUMN, CHANNEL), EXTENTS, TMA)
    assert (tile.shape, tile.strides) == ((1, 12, 10, 64), (7680, 640, 64, 1))


def test_channels_of_a_group_are_part_of_those_of_all() -> None:
    grouped, group = replace(X, shape=(4, 12, 10, 2, 32)), Slice(Affine.of(("g.0", 1)))
    slices = (IMAGE, ROW, COLUMN, group, Slice(Affine(), 32, "c"))
    tile = im2col_tile(grouped, changed(*slices), EXTENTS | {"g.0": 2}, TMA)
    assert (tile.shape, str(tile.first[-1].start)) == (X.shape, "g.0*32")


REFUSED = {
    "filled": (changed(fill=2.0), "they pad with 0, expected 2"),
    "far apart": (changed(IMAGE, ROW, window(1, 5, "s.0", step=9), CHANNEL), "positions 9 apart; expected 1 to 8"),
    "far outside": (changed(IMAGE, ROW, window(1, 5, "s.0", before=200), CHANNEL), "corners -200 and .* -128 to 127"),
    "no digits": (changed(IMAGE, ROW, window(2, 5, "s.0"), CHANNEL), "its positions are no digits of one number"),
    "every other channel": (changed(IMAGE, ROW, COLUMN, replace(CHANNEL, step=2)), "expected one dimension of"),
    "far taps": (
        changed(IMAGE, ROW, replace(COLUMN, start=Affine.of(("s.0", 150))), CHANNEL),
        "taps 300 from the first",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_no_descriptor_copies_has_a_reason(why: str) -> None:
    load, reason = REFUSED[why]
    found = why_no_im2col(X, load, EXTENTS, TMA)
    assert found is not None
    assert re.search(reason, found)


def test_rows_of_pixels_that_are_not_aligned_have_no_descriptor() -> None:
    odd = replace(X, shape=(4, 12, 10, 63))
    assert why_no_im2col(odd, LOAD, EXTENTS, TMA) == (
        "no im2col descriptor: positions are 1260 bytes apart; expected multiples of 16"
    )


def test_a_device_without_them_has_no_im2col_descriptors() -> None:
    assert why_no_im2col(X, LOAD, EXTENTS, replace(TMA, im2col=None)) == "no im2col descriptor: the device has none"
