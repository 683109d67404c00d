"""The winners of a log: the best record of every workload, target and timing policy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from search_spaces import InputError
from tuning_logs import TuningRecord, user_log_path
from tuning_logs.ranking import best_of
from tuning_logs.several.merging import records_at


def winners(log: str | os.PathLike[str] | None, select: Sequence[str] = ()) -> list[TuningRecord]:
    """The best record of each, in the order in which they were first tuned; none where nothing succeeded.

    `log` is a log, a folder of compressed ones, or (None) the user's. With `select` only those with one of these texts
    as their workload's key, or within their name (`named`). Stale records count: they are what the log promises.

    Raises:
        InputError: there is no such log.
        LogError: it cannot be read.
    """
    check_select(select)
    tasks: dict[tuple[str, str, str], list[TuningRecord]] = {}
    for record in records_at(user_log_path() if log is None else Path(log).expanduser()):
        tasks.setdefault((*record.key, record.provenance.policy), []).append(record)
    found = [best for records in tasks.values() if (best := best_of(records))]
    return [record for record in found if is_selected(record, select)]


def check_select(select: object) -> None:
    """Raise InputError for a text in the place of a list of them."""
    if isinstance(select, str):
        raise InputError(f"select={select!r}; expected a list of texts")


def is_selected(record: TuningRecord, select: Sequence[str]) -> bool:
    """True if one of the texts is its workload's key, or within its name; without any, always."""
    return not select or any(text == record.subject.key or text in named(record) for text in select)


def named(record: TuningRecord) -> str:
    """The name of a kernel: `softmax rows=64 columns=100 float32 on NVIDIA H200, cold`."""
    return f"{record.subject.label} on {record.target.label}, {record.provenance.policy}"
