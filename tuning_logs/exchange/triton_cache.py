"""Reader of `<kernel>.autotune.json`, the cache of Triton's own autotuner.

    {"key": [4096, "torch.float16"], "configs_timings": [[{"kwargs": {"BLOCK_M": 64}, "num_warps": 4, …}, [0.1, …]], …]}

Triton writes it where `triton.autotune` has `cache_results=True`, or TRITON_CACHE_AUTOTUNING is 1. The timings of a
configuration are its median and its quantiles in milliseconds, or one number; infinity where it failed. Source: Triton,
python/triton/runtime/autotuner.py. It does not name the device.
"""

from __future__ import annotations

from typing import Any

from search_spaces.schedules.plain_space import PlainValue
from tuning_logs.exchange.json_fields import field, knob, milliseconds
from tuning_logs.exchange.recorded_table import RecordedTable, RecordedTrial, latest, names_in, point_of, values_of

# Options of a configuration besides its own arguments; without a value they are left out.
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


def read_triton_cache(data: dict[str, Any], kernel: str) -> RecordedTable:
    """The table of a parsed file; its kernel is the file's name.

    Raises:
        ValueError: it is not what Triton writes; the message says what was expected, and what came.
    """
    rows = []
    for entry in field(data, "configs_timings", list):
        if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], dict)):
            raise ValueError(f"configs_timings: expected pairs of a configuration and timings, got {str(entry)[:60]!r}")
        rows.append((_values(entry[0]), entry[1]))
    names = names_in(values for values, _ in rows)
    trials = latest(_trial(values, timings, names) for values, timings in rows)
    key = data.get("key")
    size = " ".join(map(str, key)) if isinstance(key, list) else ""
    return RecordedTable(f"{kernel} {size}".strip(), "", names, values_of(trials, len(names)), trials)


def _values(config: dict[str, Any]) -> dict[str, PlainValue]:
    values = {str(name): knob(value) for name, value in field(config, "kwargs", dict).items()}
    return values | {name: knob(config[name]) for name in _OPTIONS if config.get(name) is not None}


def _trial(values: dict[str, PlainValue], timings: object, names: tuple[str, ...]) -> RecordedTrial:
    seconds = milliseconds(timings[0] if isinstance(timings, list) and timings else timings)
    return RecordedTrial(point_of(values, names), seconds, "ok" if seconds is not None else "run_error")
