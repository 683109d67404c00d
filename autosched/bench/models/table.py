"""The table of a benchmark of models: a line for every model and way, in a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from statistics import geometric_mean
from typing import Any

from autosched.bench.models.measuring import ModelRow, WayRow
from autosched.bench.models.names import WayName, is_ours
from tuning_logs.intervals import paired_ratio, ratio_interval
from tuning_logs.text import duration_text, ratio_text, table_lines

_HEAD = ("model", "way", "a call", "best other / this", "error / eager's", "first result", "peak", "launches")
_SCHEMA_VERSION = 1
# Cell for a missing measurement.
_NOTHING = "–"
_MIB = 2**20


def model_lines(rows: Sequence[ModelRow]) -> Iterator[str]:
    """The table, then the geometric mean of the fastest other way's time / ours."""
    cells = [_HEAD, *(line for row in rows for line in _lines(row))]
    yield from table_lines(cells, right=(2, 3, 4, 5, 6, 7))
    for row in rows:
        for way in row.ways:
            yield from (f"{row.name}, {way.way}: {text}" for text in (way.why_not, *way.reports) if text)
    yield (
        "a call: median of interleaved rounds of calls back to back, wall time with launches; error: root mean square, "
        "against float64; first result: with compilation, capture and tuning; peak: bytes of the GPU beyond those in "
        "use before a call"
    )
    for name in dict.fromkeys(w.way for row in rows for w in row.ways if is_ours(w.way)):
        ratios = [best_other_ratio(row, w) for row in rows for w in row.ways if w.way == name and w.latencies_s]
        if known := [r for r in ratios if r]:
            mean = geometric_mean(known)
            yield f"best other / {name}: geometric mean {mean:.3f} over {len(known)}, smallest {min(known):.3f}"


def _lines(row: ModelRow) -> Iterator[tuple[str, ...]]:
    if row.why_not:
        yield (row.name, row.why_not, *[""] * 6)
    for way in row.ways:
        if way.why_not:
            yield (row.name, way.way, _NOTHING, *[""] * 5)
            continue
        best = _best_other(row, way)
        ratio = "" if best is None else _ratio(best, way)
        peak = f"{way.peak_bytes / _MIB:.0f} MiB" if way.peak_bytes else ""
        yield (
            row.name,
            way.way,
            duration_text(way.median_s),
            ratio,
            f"{way.error:.2f}",
            f"{way.first_s:.1f} s",
            peak,
            str(way.launches or ""),
        )


def _ratio(slow: WayRow, fast: WayRow) -> str:
    pair = slow.latencies_s, fast.latencies_s
    return ratio_text(paired_ratio(*pair), ratio_interval(*pair))


def best_other_ratio(row: ModelRow, way: WayRow) -> float:
    """The time of the fastest way that is not autosched's / this one's; 0 where there is none."""
    best = _best_other(row, way)
    return 0.0 if best is None else paired_ratio(best.latencies_s, way.latencies_s)


def _best_other(row: ModelRow, way: WayRow) -> WayRow | None:
    others = [w for w in row.ways if not is_ours(w.way) and w.latencies_s and w is not way]
    return min(others, key=lambda w: w.median_s, default=None)


def model_table_json(
    rows: Iterable[ModelRow], ways: Sequence[WayName], command: str, versions: Mapping[str, str]
) -> dict[str, Any]:
    """All measurements, with the latencies of every round."""
    made = {"schema": _SCHEMA_VERSION, "kind": "models", "ways": list(ways), "command": command}
    return {**made, "versions": dict(versions), "rows": [asdict(row) for row in rows]}
