"""Kernel Tuner's cache files, read and written.

{"device_name": …, "kernel_name": …, "problem_size": […], "tune_params_keys": [name, …],
 "tune_params": {name: [value, …], …}, "objective": "time",
 "cache": {"16,1": {name: value, …, "time": 5.9, "times": [5.3, …], "compile_time": 892.9, …}, …}}

Times are milliseconds; a failure has the name of an error in place of its time. While Kernel Tuner writes a cache, the
two braces at its end are missing. Source: Kernel Tuner, kernel_tuner/util.py (process_cache, store_cache).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from tuning_logs.exchange.json_fields import MS, field, knob, made_at, milliseconds, number, numbers, version
from tuning_logs.exchange.origin_json import origin_from_json, origin_to_json
from tuning_logs.exchange.recorded_table import RecordedTable, RecordedTrial, latest
from tuning_logs.measurement import STATUSES, Status

# Status of each error. Kernel Tuner calls a configuration invalid that the device refuses.
_ERRORS: dict[str, Status] = {
    "CompilationFailedConfig": "compile_error",
    "RuntimeFailedConfig": "run_error",
    "InvalidConfig": "load_error",
}
# Statuses without an error of their own share one.
_BEFORE_RUNNING = ("compile_error", "compile_timeout", "compile_crash", "out_of_memory")
_NEVER_RUN = ("load_error", "pruned")


def read_kernel_tuner(data: dict[str, Any]) -> RecordedTable:
    """The table of a parsed cache file.

    Raises:
        ValueError: it is not what Kernel Tuner writes; the message says what was expected, and what came.
    """
    version(data, "Kernel Tuner cache")
    names = [str(name) for name in field(data, "tune_params_keys", list)]
    params = field(data, "tune_params", dict)
    values = tuple(tuple(knob(v) for v in field(params, name, list)) for name in names)
    allowed = [set(of) for of in values]
    trials = []
    for key, entry in field(data, "cache", dict).items():
        if not isinstance(entry, dict):
            raise ValueError(f"configuration {key!r}: expected an object, got {str(entry)[:60]!r}")
        trial = _trial(key, entry, names)
        for name, value, of in zip(names, trial.point, allowed, strict=True):
            if value not in of:
                raise ValueError(f"configuration {key!r}: {name}={value!r}; allowed are {sorted(of, key=str)[:20]}")
        trials.append(trial)
    size = data.get("problem_size", ())
    return RecordedTable(
        kernel=str(data.get("kernel_name", "")),
        device=str(data.get("device_name", "")),
        names=tuple(names),
        values=values,
        trials=latest(trials),
        problem_size=tuple(size) if isinstance(size, list) else (size,) if isinstance(size, int | str) else (),
        origin=origin_from_json(data),
    )


def _trial(key: str, entry: dict[str, Any], names: list[str]) -> RecordedTrial:
    lacking = [name for name in names if name not in entry]
    if lacking:
        raise ValueError(f"configuration {key!r}: expected a value of {', '.join(lacking)}; got {', '.join(entry)}")
    if "time" not in entry and "__error__" not in entry:
        raise ValueError(f"configuration {key!r}: expected a time; got {', '.join(entry)}")
    seconds, status = _outcome(key, entry)
    return RecordedTrial(
        point=tuple([knob(entry[name]) for name in names]),
        seconds=seconds,
        status=status,
        repeats_s=numbers(entry.get("times"), MS) if seconds is not None else (),
        compile_s=number(entry.get("compile_time")) * MS,
        check_s=number(entry.get("verification_time")) * MS,
        timing_s=number(entry.get("benchmark_time")) * MS,
        search_s=(number(entry.get("framework_time")) + number(entry.get("strategy_time"))) * MS,
        unix_s=made_at(entry.get("timestamp")),
        source=str(entry.get("source", "")),
    )


def _outcome(key: str, entry: dict[str, Any]) -> tuple[float | None, Status]:
    time = entry.get("__error__", entry.get("time"))
    if not isinstance(time, str):
        seconds = milliseconds(time)
        return seconds, "ok" if seconds is not None else "run_error"
    if time not in _ERRORS:
        raise ValueError(f"configuration {key!r}: time {time!r}; expected milliseconds or one of {', '.join(_ERRORS)}")
    status = entry.get("status")
    return None, status if status in STATUSES and _error(status) == time else _ERRORS[time]


def _error(status: Status) -> str:
    if status in _NEVER_RUN:
        return "InvalidConfig"
    return "CompilationFailedConfig" if status in _BEFORE_RUNNING else "RuntimeFailedConfig"


def kernel_tuner_text(table: RecordedTable) -> Iterator[str]:
    """The lines of a cache file of the table, closed, in Kernel Tuner's layout."""
    header: dict[str, Any] = {
        "device_name": table.device,
        "kernel_name": table.kernel,
        "problem_size": list(table.problem_size),
        "tune_params_keys": list(table.names),
        "tune_params": dict(zip(table.names, table.values, strict=True)),
        "objective": "time",
        **origin_to_json(table.origin),
        "cache": {},
    }
    yield json.dumps(header, indent="").removesuffix("{}\n}") + "{"
    for place, trial in enumerate(table.trials):
        key = ",".join(map(str, trial.point))
        yield ("," if place else "") + f"\n{json.dumps(key)}: {json.dumps(_entry(table, trial), allow_nan=False)}"
    yield "}\n}\n"


def _entry(table: RecordedTable, trial: RecordedTrial) -> dict[str, Any]:
    entry: dict[str, Any] = dict(zip(table.names, trial.point, strict=True))
    if trial.seconds is None:
        entry["time"] = entry["__error__"] = _error(trial.status)
        if _ERRORS[entry["time"]] != trial.status:
            entry["status"] = trial.status
    else:
        entry |= {"time": trial.seconds / MS, "times": [s / MS for s in trial.repeats_s or (trial.seconds,)]}
    entry |= {
        "compile_time": trial.compile_s / MS,
        "verification_time": trial.check_s / MS,
        "benchmark_time": trial.timing_s / MS,
        "strategy_time": 0,
        "framework_time": trial.search_s / MS,
    }
    if trial.unix_s is not None:
        entry["timestamp"] = str(datetime.fromtimestamp(trial.unix_s, UTC))
    if trial.source:
        entry["source"] = trial.source
    return entry
