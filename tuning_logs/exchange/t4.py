"""Results files in T4, the common format of auto-tuners, read and written.

    {"schema_version": "1.0.0", "metadata": {"timeunit": "milliseconds"},
     "results": [{"timestamp": …, "configuration": {name: value, …}, "objectives": ["time"],
                  "times": {"compilation": …, "framework": …, "search_algorithm": …, "validation": …, "runtimes": […]},
                  "invalidity": "correct", "correctness": 1,
                  "measurements": [{"name": "time", "value": 5.9, "unit": "ms"}, …]}, …]}

Source: Kernel Tuner, kernel_tuner/schema/T4/1.0.0/results-schema.json. It has no members for kernel and device: they
are written into the metadata, which it has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from tuning_logs.exchange.json_fields import MS, field, knob, made_at, milliseconds, number, numbers, version
from tuning_logs.exchange.origin_json import origin_from_json, origin_to_json
from tuning_logs.exchange.recorded_table import RecordedTable, RecordedTrial, latest, values_of
from tuning_logs.measurement import STATUSES, Status

_VERSION = "1.0.0"
# The outcomes of T4, each with its status: where several statuses are written as one outcome, the first.
_INVALIDITIES: dict[str, Status] = {
    "timeout": "run_timeout",
    "compile": "compile_error",
    "runtime": "run_error",
    "correctness": "wrong_result",
    "constraints": "load_error",
}
_WRITTEN: dict[Status, str] = {
    "compile_timeout": "timeout",
    "compile_crash": "compile",
    "out_of_memory": "compile",
    "run_crash": "runtime",
    "pruned": "constraints",
    "not_finite": "correctness",
    "unwritten_output": "correctness",
    "out_of_bounds_read": "correctness",
    "out_of_bounds_write": "correctness",
    "changed_input": "correctness",
    **{status: name for name, status in _INVALIDITIES.items()},
}
# The units of times that are read, in seconds. The misspelt one occurs in published tables.
_UNITS = {"seconds": 1.0, "s": 1.0, "milliseconds": MS, "miliseconds": MS, "ms": MS, "microseconds": 1e-6, "us": 1e-6,
          "nanoseconds": 1e-9, "ns": 1e-9}  # fmt: skip


def read_t4(data: dict[str, Any]) -> RecordedTable:
    """The table of a parsed results file.

    Raises:
        ValueError: it is not of this format; the message says what was expected, and what came.
    """
    version(data, "T4 file")
    results = field(data, "results", list)
    metadata = data.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    unit = _unit(metadata.get("timeunit", "milliseconds"))
    names = tuple(field(_result(results[0], 0), "configuration", dict)) if results else ()
    trials = latest([_trial(_result(result, place), place, names, unit) for place, result in enumerate(results)])
    return RecordedTable(
        kernel=str(metadata.get("kernel", "")),
        device=str(metadata.get("device", "")),
        names=names,
        values=values_of(trials, len(names)),
        trials=trials,
        origin=origin_from_json(metadata),
    )


def _result(result: object, place: int) -> dict[str, Any]:
    if not isinstance(result, dict):
        raise ValueError(f"result {place}: expected an object, got {str(result)[:60]!r}")
    return result


def _unit(name: object) -> float:
    if str(name).lower() not in _UNITS:
        raise ValueError(f"unit {name!r} of times; expected one of {', '.join(_UNITS)}")
    return _UNITS[str(name).lower()]


def _trial(result: dict[str, Any], place: int, names: tuple[str, ...], unit: float) -> RecordedTrial:
    configuration = field(result, "configuration", dict)
    if set(configuration) != set(names):
        raise ValueError(f"result {place}: expected the knobs {', '.join(names)}; got {', '.join(configuration)}")
    seconds, status = _outcome(result, place, unit)
    times = field(result, "times", dict)
    return RecordedTrial(
        point=tuple([knob(configuration[name]) for name in names]),
        seconds=seconds,
        status=status,
        repeats_s=numbers(times.get("runtimes"), unit) if seconds is not None else (),
        compile_s=number(times.get("compilation", times.get("compilation_time"))) * unit,
        check_s=number(times.get("validation")) * unit,
        timing_s=number(times.get("benchmark")) * unit,
        search_s=(number(times.get("framework")) + number(times.get("search_algorithm"))) * unit,
        unix_s=made_at(result.get("timestamp")),
        source=str(_measured(result).get("source", ("", ""))[0]),
    )


def _outcome(result: dict[str, Any], place: int, unit: float) -> tuple[float | None, Status]:
    invalidity = str(result.get("invalidity", "correct"))
    measured = _measured(result)
    if invalidity in _INVALIDITIES:
        status = measured.get("status", ("", ""))[0]
        finer = status in STATUSES and _WRITTEN.get(status) == invalidity
        return None, status if finer else _INVALIDITIES[invalidity]
    if invalidity != "correct":
        allowed = ", ".join(["correct", *_INVALIDITIES])
        raise ValueError(f"result {place}: invalidity {invalidity!r}; expected one of {allowed}")
    if "time" not in measured:
        got = ", ".join(measured) or "none"
        raise ValueError(f"result {place}: expected a measurement called time; got {got}")
    value, its_unit = measured["time"]
    seconds = milliseconds(value)
    if seconds is None:
        return None, "run_error"
    return seconds / MS * (_unit(its_unit) if its_unit else unit), "ok"


def _measured(result: dict[str, Any]) -> dict[str, tuple[Any, str]]:
    """The value and the unit of each measurement."""
    found = result.get("measurements")
    rows = [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
    return {str(row.get("name")): (row.get("value"), str(row.get("unit", ""))) for row in rows}


def t4_text(table: RecordedTable) -> Iterator[str]:
    """The text of a results file of the table."""
    metadata = {"timeunit": "milliseconds", "kernel": table.kernel, "device": table.device}
    head = {"schema_version": _VERSION, "metadata": {**metadata, **origin_to_json(table.origin)}}
    yield json.dumps(head, allow_nan=False)[:-1] + ', "results": ['
    for place, trial in enumerate(table.trials):
        yield ("," if place else "") + "\n" + json.dumps(_result_of(table, trial), allow_nan=False)
    yield "]}\n"


def _result_of(table: RecordedTable, trial: RecordedTrial) -> dict[str, Any]:
    failed = None if trial.seconds is not None else _WRITTEN[trial.status]
    value = trial.seconds / MS if trial.seconds is not None else failed
    measurements = [{"name": "time", "value": value, "unit": "ms" if failed is None else ""}]
    if failed is not None and _INVALIDITIES[failed] != trial.status:
        measurements.append({"name": "status", "value": trial.status, "unit": ""})
    if trial.source:
        measurements.append({"name": "source", "value": trial.source, "unit": ""})
    when = {} if trial.unix_s is None else {"timestamp": str(datetime.fromtimestamp(trial.unix_s, UTC))}
    return {
        **when,
        "configuration": dict(zip(table.names, trial.point, strict=True)),
        "times": {
            "compilation": trial.compile_s / MS,
            "benchmark": trial.timing_s / MS,
            "framework": trial.search_s / MS,
            "search_algorithm": 0,
            "validation": trial.check_s / MS,
            "runtimes": [s / MS for s in trial.repeats_s],
        },
        "invalidity": failed or "correct",
        "correctness": int(failed is None),
        "measurements": measurements,
        "objectives": ["time"],
    }
