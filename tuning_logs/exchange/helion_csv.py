"""Reader of HELION_AUTOTUNE_LOG, `<base>.csv`, the log of Helion's autotuner.

    run_id,timestamp_s,config_id,generation,status,perf_ms,compile_time_s,config
    3f…,1.20,9a…,0,ok,0.061000,0.90,"Config(block_sizes=[64, 32], num_warps=4)"

A configuration has several rows: one for its start, and one for every end. Values that are lists are as many knobs:
`block_sizes.0`, `block_sizes.1`. Runs of several kernels are several tables. The kernel and device of each run are in
`<base>.meta.jsonl`, where HELION_AUTOTUNE_LOG_DETAILS was 1. Source: Helion, helion/autotuner/logger.py,
helion/autotuner/metrics.py, helion/runtime/config.py.
"""

from __future__ import annotations

import ast
import csv
import io
import json
from collections.abc import Mapping

from search_spaces.schedules.plain_space import PlainValue
from tuning_logs.exchange.json_fields import MS
from tuning_logs.exchange.recorded_table import (
    RecordedTable,
    RecordedTrial,
    latest,
    names_in,
    point_of,
    values_of,
)
from tuning_logs.measurement import Status

_NEEDED = ("status", "perf_ms", "config")
# Statuses of a configuration's end; other rows mark its start, or that it was not tried.
_ENDED: dict[str, Status] = {"ok": "ok", "error": "run_error", "timeout": "compile_timeout"}


def read_helion_csv(text: str, details: str = "") -> list[RecordedTable]:
    """A table for each run of the log; `details` is the text of `<base>.meta.jsonl`.

    Raises:
        ValueError: it is not what Helion writes; the message says what was expected, and what came.
    """
    rows = list(csv.DictReader(io.StringIO(text)))
    columns = text.partition("\n")[0]
    lacking = [name for name in _NEEDED if rows and name not in rows[0]]
    if lacking or not rows:
        raise ValueError(f"expected rows with the columns {', '.join(_NEEDED)}; got {columns[:120]!r}")
    runs: dict[str, list[tuple[dict[str, PlainValue], Mapping[str, str]]]] = {}
    for number, row in enumerate(rows, 2):
        if row["status"] in _ENDED:
            runs.setdefault(row.get("run_id") or "", []).append((_values(row["config"], number), row))
    run_labels = _kernels_and_devices(details)
    return [_table(*run_labels.get(run, (f"Helion run {run}".strip(), "")), ended) for run, ended in runs.items()]


def _kernels_and_devices(details: str) -> dict[str, tuple[str, str]]:
    """Kernel and device by run; torn lines are ignored."""
    found = {}
    for line in details.splitlines():
        try:
            run = json.loads(line)
            found[str(run["run_id"])] = f"{run['kernel_name']} {run['input_shapes']}", str(run["hardware"])
        except (ValueError, LookupError, TypeError, RecursionError):
            continue
    return found


def _table(kernel: str, device: str, rows: list[tuple[dict[str, PlainValue], Mapping[str, str]]]) -> RecordedTable:
    names = names_in(values for values, _ in rows)
    trials = latest(_trial(values, row, names) for values, row in rows)
    return RecordedTable(kernel, device, names, values_of(trials, len(names)), trials)


def _trial(values: dict[str, PlainValue], row: Mapping[str, str], names: tuple[str, ...]) -> RecordedTrial:
    milliseconds, compile_s = _number(row["perf_ms"]), _number(row.get("compile_time_s"))
    status = _ENDED[row["status"]]
    ok = status == "ok" and milliseconds > 0
    return RecordedTrial(
        point_of(values, names),
        milliseconds * MS if ok else None,
        "ok" if ok else "run_error" if status == "ok" else status,
        compile_s=compile_s,
    )


def _number(text: str | None) -> float:
    try:
        return float(text or 0)
    except ValueError:
        return 0.0


def _values(config: str | None, line: int) -> dict[str, PlainValue]:
    """The knobs of `Config(block_sizes=[64, 32], num_warps=4)`, or of `helion.Config(…)`."""
    try:
        call = ast.parse((config or "").strip(), mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError("no call")
        read = {word.arg or "": ast.literal_eval(word.value) for word in call.keywords}
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"line {line}: expected Config(name=value, …), got {(config or '')[:60]!r}") from None
    return {name: value for whole, found in read.items() for name, value in _spread(whole, found).items()}


def _spread(name: str, value: object) -> dict[str, PlainValue]:
    """A list as a knob for each of its elements; deeper nesting as text."""
    if isinstance(value, list | tuple):
        return {f"{name}.{place}": _scalar(part) for place, part in enumerate(value)}
    return {name: _scalar(value)}


def _scalar(value: object) -> PlainValue:
    return value if value is None or isinstance(value, int | float | str) else repr(value)
