"""Overlapping reads, as of the taps of a convolution, are counted once where a cache holds them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import best_spaces
from cost_models.features import FEATURE_NAMES, features
from cost_models.program_counts import Traffic, count
from cost_models.reuse import Nest
from cost_models.windows import Window
from search_spaces import Schedule, Workload, ops, target_named
from search_spaces.programs.statements import Load

H200 = target_named("h200")
DENSE = ops.conv(4, 32, (24, 20), 48, 3, padding=1, dtype="float16")
WORKLOADS = {
    "dense": DENSE,
    "strided": ops.conv(4, 32, (24, 20), 48, 3, padding=1, stride=2, dtype="float16"),
    "dilated": ops.conv(4, 32, (24, 20), 48, 3, padding=2, dilation=2, dtype="float16"),
    "channels first": ops.conv(4, 32, (24, 20), 48, 3, padding=1, dtype="float16", layout="contiguous"),
    "grouped": ops.conv(4, 64, (12, 12), 64, 3, padding=1, groups=2, dtype="float16"),
    "depthwise": ops.conv(4, 64, (24, 20), 64, 5, padding=2, groups=64, dtype="float16"),
    "one row": ops.conv(4, 32, 80, 48, 5, padding=2, dtype="float16"),
}


def sampled(workload: Workload, number: int = 6, **knobs: Any) -> Iterator[Schedule]:
    space, rng = best_spaces.build(workload, H200), np.random.default_rng(0)
    if knobs:
        space = space.restricted("contraction", **knobs)
    return (space.sample(rng) for _ in range(number))


def by_name(schedule: Schedule) -> Mapping[str, float]:
    """Features without their logarithm."""
    values = 2 ** features(schedule.program, H200).astype(np.float64) - 1
    return dict(zip(FEATURE_NAMES, values, strict=True))


def test_nine_taps_of_a_tile_are_the_tile_and_its_halo() -> None:
    rows = Window(8, 8, 100, (("r", 3, 1.0), ("p.0", 12, 8.0)))
    columns = Window(16, 16, 100, (("s", 3, 1.0), ("q.0", 6, 16.0)))
    trips = {"r": 3.0, "s": 3.0}
    assert rows.overlaps
    assert (rows.visited(trips), columns.visited(trips)) == (24, 48)
    assert (rows.distinct(trips), columns.distinct(trips)) == (10, 18)
    assert rows.distinct({"p.0": 12.0}) == 96
    assert rows.distinct({"r": 3.0, "p.0": 12.0}) == 98
    assert rows.distinct({"r": 3.0, "p.0": 13.0}) <= 100


def test_tiles_that_lie_next_to_each_other_do_not_overlap() -> None:
    assert not Window(16, 16, 64, (("k.1", 2, 16.0), ("k.0", 2, 32.0))).overlaps
    assert not Window(1, 1, 64, (("k", 64, 1.0),)).overlaps
    assert Window(1, 1, 64, (("r", 3, 1.0), ("p", 62, 1.0))).overlaps


def exactly(t: Traffic, loads: list[Load], values: Mapping[str, int], shape: tuple[int, ...]) -> int:
    """Distinct elements within the buffer that loads touch over all values of variables, the others being 0."""
    touched: set[tuple[int, ...]] = set()
    names = sorted(
        {v for s in loads for p in s.slices for v in (*p.start.axes, *(p.flat.start.axes if p.flat else ()))}
    )
    for point in itertools.product(*(range(values.get(name, 1)) for name in names)):
        at = dict(zip(names, point, strict=True))
        for s in loads:
            axes = {p.axis: p.extent for p in s.slices if p.axis and p.extent}
            for position in itertools.product(*(range(extent) for extent in axes.values())):
                along = dict(zip(axes, position, strict=True))
                index = []
                for p in s.slices:
                    own = along.get(p.axis, 0)
                    if p.flat is not None:
                        own = p.flat.of(p.flat.start.evaluate(at) + own)
                    index.append(p.start.evaluate(at) + p.step * own)
                if all(0 <= i < n for i, n in zip(index, shape, strict=True)):
                    touched.add(tuple(index))
    return len(touched)


@pytest.mark.parametrize("name", WORKLOADS)
def test_what_a_program_touches_is_nearly_counted(name: str) -> None:
    """Of the first program, whose padding is no memory, and whose ranges end within a row."""
    seen = 0
    for schedule in sampled(WORKLOADS[name]):
        program = schedule.program
        nest, shapes = Nest(count(program)[0]), {b.name: b.shape for b in program.buffers}
        digits = {
            d: size for _, _, loop in nest.counts.loops if loop.digits is not None for d, size in loop.digits.radix
        }
        for t in nest.reads:
            if not t.windows or any(times != int(times) for _, times in t.loops):
                continue
            members = next((of for of, whole in nest.counts.joined if whole is t), [t])
            loads = [m.statement for m in members if isinstance(m.statement, Load)]
            values = {v: int(times) for v, times in t.loops} | digits
            if math.prod(values.values()) != math.prod(int(times) for _, times in t.loops) * math.prod(digits.values()):
                continue
            element = t.tile_bytes / math.prod(w.positions for w in t.windows)
            counted = nest.footprints[nest.reads.index(t)][len(nest.grid)] / element
            found = exactly(t, loads, values, shapes[t.place])
            assert found <= counted * 1.001, schedule
            # A corner of an image: two of its sides are padding, and rows that a range ends in are counted whole.
            assert counted <= 5.0 * found + 64, schedule
            seen += 1
    assert seen


def test_the_taps_of_an_unrolled_window_are_read_from_memory_once() -> None:
    for schedule in sampled(WORKLOADS["depthwise"], 4):
        (counts,) = count(schedule.program)
        ((members, whole),) = counts.joined
        nest = Nest(counts)
        assert len(members) >= 25
        assert [t for t in nest.reads if t.place == "in0"] == [whole]
        assert nest.footprints[nest.reads.index(whole)][0] == pytest.approx(whole.place_bytes)
        found = by_name(schedule)
        assert found["window_visits"] == pytest.approx(len(members), rel=1e-4)
        assert 1 <= found["window_reuse"] < 25


def test_larger_tiles_of_pixels_reuse_more_of_a_window() -> None:
    small, large = (
        by_name(next(sampled(DENSE, m_axes=["range"], split=[1], m=[(1, m)])))["window_reuse"] for m in (32, 256)
    )
    assert 1 < small < large < 9


def test_products_have_no_windows() -> None:
    one = ops.conv(4, 32, (24, 20), 48, 1, dtype="float16", epilogue="bias_relu")
    for schedule in (*sampled(one), *sampled(ops.conv(4, 3, (32, 32), 48, 4, stride=4, dtype="float16"))):
        found = by_name(schedule)
        assert (found["window_visits"], found["window_reuse"]) == (0, 0)


def test_a_range_of_pixels_has_pieces_no_longer_than_a_row() -> None:
    for schedule in sampled(DENSE, m_axes=["range"]):
        image = next(t for t in count(schedule.program)[0].loads if t.place == "in0")
        assert image.run_bytes <= 2 * 32 * 20
