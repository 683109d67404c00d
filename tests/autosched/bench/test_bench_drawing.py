"""The picture of a benchmark: what is drawn, and where labels go."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import autosched
from autosched.bench.drawing.labels import place_labels
from autosched.bench.drawing.plot import draw
from autosched.bench.drawing.roofline import Point, Roofline


def fake_roofline(points: int) -> Roofline:
    made = [Point(f"shape-{i}", "bfloat16", 2.0**i, 4e12 * 2**i, 3e12 * 2**i if i % 2 else None) for i in range(points)]
    return Roofline("small on a GPU", "library", 4e12, (("bfloat16", 8e14), ("tf32", 4e14)), tuple(made))


def test_a_roofline_is_drawn_as_png_and_svg(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    png, svg = draw(fake_roofline(8), tmp_path)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert png.stat().st_size > 20_000
    assert svg.read_text().count("<use") > 8
    assert svg.read_text().lower().count("#0072b2") > 8


def test_nothing_measured_is_nothing_drawn(tmp_path: Path) -> None:
    with pytest.raises(autosched.AutoschedError, match="nothing to draw"):
        draw(fake_roofline(0), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(autosched.AutoschedError, match=r'pip install "autosched\[plot\]"'):
        draw(fake_roofline(2), tmp_path)


def test_labels_cover_neither_each_other_nor_what_is_drawn() -> None:
    anchors = [(200.0 + 3 * i, 200.0 + 2 * i) for i in range(12)]
    covered = [(x - 5, y - 5, x + 5, y + 5) for x, y in anchors]
    places = place_labels(anchors, [(80.0, 12.0)] * 12, covered, (0.0, 0.0, 800.0, 600.0))
    boxes = [*covered, *((x, y, x + 80, y + 12) for x, y in places)]
    for i in range(12, len(boxes)):
        a = boxes[i]
        assert a[0] >= 0
        assert a[2] <= 800
        for b in (boxes[j] for j in range(i)):
            assert a[0] >= b[2] or b[0] >= a[2] or a[1] >= b[3] or b[1] >= a[3]
