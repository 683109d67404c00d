"""The measured roofline of a benchmark: roofs and points, as plain figures that a picture can be drawn from later.

Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore
architectures", CACM 52(4), 2009.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from autosched.bench.peaks import dot_dtype, dot_flops
from autosched.bench.rows import BenchRow, BenchTable


@dataclass(frozen=True)
class Point:
    """A case: its arithmetic intensity, in operations per byte that must move, and the operations per second reached.

    `dtype` is the element type of its dots, "" without any; `baseline_rate` is None if that was not measured.
    """

    name: str
    dtype: str
    intensity: float
    tuned_rate: float
    baseline_rate: float | None


@dataclass(frozen=True)
class Roofline:
    """`bandwidth` in bytes per second, `peaks` in operations per second by element type, all of them measured."""

    title: str
    baseline: str
    bandwidth: float
    peaks: tuple[tuple[str, float], ...]
    points: tuple[Point, ...]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "peaks": dict(self.peaks)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Roofline:
        """The roofline of a parsed table.

        Raises:
            KeyError, TypeError: it is none.
        """
        points = tuple(Point(**point) for point in data["points"])
        return Roofline(data["title"], data["baseline"], data["bandwidth"], tuple(data["peaks"].items()), points)


def roofline(table: BenchTable, title: str) -> Roofline:
    """The roofline of the measured rows, with the tuned kernel and the first baseline."""
    baseline = table.baselines[0] if table.baselines else ""
    points = tuple(_point(row, baseline) for row in table.rows if row.tuned_s)
    return Roofline(title, baseline, table.peaks.copied, table.peaks.dots, points)


def _point(row: BenchRow, baseline: str) -> Point:
    op, tuned = row.op, row.tuned_s
    assert op is not None
    assert tuned is not None
    flops = dot_flops(op) or op.flops
    ratio = row.ratio(baseline)
    return Point(
        name=row.case.name,
        dtype=dot_dtype(op) or "",
        intensity=flops / op.min_bytes,
        tuned_rate=flops / tuned,
        baseline_rate=flops / tuned / ratio.value if ratio else None,
    )
