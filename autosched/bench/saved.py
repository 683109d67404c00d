"""Files of a benchmark: the table as Markdown and as JSON, and the picture drawn from the latter."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from autosched.bench.drawing.roofline import Roofline, roofline
from autosched.bench.rows import BenchRow, BenchTable
from autosched.bench.table import markdown, title
from autosched.comparing.compare import Row
from autosched.tracing import TracedFunction
from search_spaces import InputError, Workload

MARKDOWN, JSON = "table.md", "table.json"
_PICTURES = ("roofline.png", "roofline.svg")
# Raised when older files would be read wrongly.
_SCHEMA_VERSION = 1


def save_table(table: BenchTable, folder: Path) -> None:
    """Write the table over that of an earlier run or row; each file is replaced atomically.

    An existing picture is of another table, and is deleted.
    """
    for picture in _PICTURES:
        (folder / picture).unlink(missing_ok=True)
    _replace(folder / MARKDOWN, markdown(table))
    _replace(folder / JSON, json.dumps(table_json(table), indent=1) + "\n")


def saved_roofline(path: Path) -> Roofline:
    """The roofline of a saved table.

    Raises:
        InputError: the file cannot be read, or is no table of a benchmark.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] != _SCHEMA_VERSION:
            raise InputError(f"{path} has schema {data['schema']!r}; expected {_SCHEMA_VERSION}")
        return Roofline.from_json(data["roofline"])
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except InputError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no table of `autosched bench` ({type(error).__name__}: {error})") from None


def table_json(table: BenchTable) -> dict[str, Any]:
    """All measurements: the latencies of every round, from which ratios and intervals can be computed anew."""
    return {
        "schema": _SCHEMA_VERSION,
        "kind": table.kind,
        "suite": table.suite,
        "target": table.target.to_json(),
        "policy": table.policy,
        "baselines": list(table.baselines),
        "command": table.command,
        "versions": dict(table.versions),
        "ended": table.ended,
        "measured_peaks": {"flops_per_s": dict(table.peaks.dots), "copied_bytes_per_s": table.peaks.copied},
        "rows": [_row_json(row, table) for row in table.rows],
        "roofline": roofline(table, title(table)).to_json(),
    }


def _row_json(row: BenchRow, table: BenchTable) -> dict[str, Any]:
    data: dict[str, Any] = {"name": row.case.name, **dict(row.case.facts)}
    if row.comparison is None:
        return {**data, "why_not": row.why_not}
    return {
        **data,
        **_op_json(row.comparison.op, table),
        "contenders": [_contender_json(r) for r in row.comparison.rows if r.predicted_s is None],
        "slowdowns": list(row.comparison.slowdowns),
        "ratios": {b: _ratio_json(row, b) for b in table.baselines},
        "part_of_measured_peak": row.part_of_peak(table.peaks),
        "part_of_measured_roofline": row.part_of_roofline(table.peaks),
        "tuning": dict(row.tuning.__dict__) if row.tuning else None,
    }


def _op_json(op: Workload | TracedFunction, table: BenchTable) -> dict[str, Any]:
    if isinstance(op, Workload):
        return {"workload": op.to_json()}
    return {
        "workloads": [workload.to_json() for workload in op.launched],
        "left_to_pytorch": list(op.left_to_pytorch),
        "min_bytes": op.min_bytes,
        "bounded_by": "dots" if table.peaks.bounded_by_dots(op) else "bytes",
    }


def _contender_json(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "label": row.label,
        "note": row.note,
        "latencies_s": list(row.latencies_s),
        "compile_s": row.compile_s,
        "way": row.way,
    }


def _ratio_json(row: BenchRow, baseline: str) -> dict[str, float] | None:
    ratio = row.ratio(baseline)
    if ratio is None:
        return None
    ends = {"low": ratio.interval.low, "high": ratio.interval.high} if ratio.interval else {}
    return {"ratio": ratio.value, **ends}


def _replace(path: Path, text: str) -> None:
    unfinished = path.with_name(f"{path.name}.part")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, path)
