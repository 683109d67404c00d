"""Several logs merged: each record once, in the order of measuring."""

from __future__ import annotations

import gzip
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from search_spaces import InputError, LogError
from tuning_logs.log import TuningLog
from tuning_logs.measurement import ALTERNATIVES
from tuning_logs.packing import PACKED_SUFFIX, is_packed, packed, replace_file
from tuning_logs.record import TuningRecord


@dataclass(frozen=True)
class Merged:
    """Number of records in a merged log, and of duplicates left out."""

    records: int
    duplicates: int


def merge(logs: Sequence[Path], to: Path) -> Merged:
    """Write the records of the logs into a new one; lines that cannot be read are skipped with a warning.

    Raises:
        InputError: one of the logs does not exist, or the new one does already.
        LogError: one cannot be read, or the new one cannot be written: nothing is.
    """
    if to.exists():
        raise InputError(f"{to} exists already; expected the name of a new log")
    found = [record for path in logs for record in records_at(path)]
    kept = merged(found)
    content = packed(kept)
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        replace_file(to, content if is_packed(to) else gzip.decompress(content))
    except OSError as error:
        raise LogError(f"cannot write {to}: {error.strerror or error}; nothing was written") from error
    return Merged(len(kept), len(found) - len(kept))


def records_at(path: Path) -> list[TuningRecord]:
    """The records of `logs_at`.

    Raises:
        InputError: there is none.
        LogError: it is no tuning log, or one of which no record can be read.
    """
    return [record for log in logs_at(path) for record in log.readable()]


def logs_at(path: Path) -> list[TuningLog]:
    """A log that must be there, or all compressed logs in a folder, such as those that ship.

    Raises:
        InputError: there is none.
        LogError: it is no tuning log.
    """
    files = sorted(path.rglob(f"*{PACKED_SUFFIX}")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise InputError(f"{path}: no such log; expected a tuning log, or a folder of compressed ones")
    logs = [TuningLog(file) for file in files]
    for log in logs:
        log.check_is_log()
    return logs


def merged(records: Iterable[TuningRecord]) -> list[TuningRecord]:
    """Each measurement once, by time; at equal times, in the order given.

    Of copies the most complete one is kept: exported ones lack the reasons of failures, and imported ones the mark of
    finals; and a record is written again once alternatives to its kernel have been timed. Cuts that only others of the
    copies name are kept as well.
    """
    kept: dict[Hashable, TuningRecord] = {}
    for record in records:
        key = _identity(record)
        other = kept.get(key)
        if other is None:
            kept[key] = record
        else:
            first, last = sorted((record, other), key=_completeness)
            kept[key] = _with_alternatives_of(last, first)
    return sorted(kept.values(), key=lambda record: record.provenance.unix_s)


def new_to(log: TuningLog, records: Iterable[TuningRecord]) -> list[TuningRecord]:
    """The records that the log lacks, once each, in their order.

    Raises:
        LogError: the log exists but cannot be read.
    """
    known = set(map(_identity, log))
    found: dict[Hashable, TuningRecord] = {}
    for record in records:
        found.setdefault(_identity(record), record)
    return [record for key, record in found.items() if key not in known]


def _identity(record: TuningRecord) -> Hashable:
    """A key that two measurements never share: time, device, schedule and outcome.

    Files of other tuners have neither seed nor number of a trial, and not always the order of knobs; times of day go to
    microseconds there, and latencies through another unit.
    """
    measured, provenance = record.measurement, record.provenance
    schedule = record.schedule.sketch, record.schedule.backend, frozenset(record.schedule.values)
    latencies = tuple(float(f"{latency:.6g}") for latency in measured.latencies_s)
    return record.key, schedule, round(provenance.unix_s, 6), provenance.policy, measured.status, latencies


def _with_alternatives_of(record: TuningRecord, other: TuningRecord) -> TuningRecord:
    """The record with those alternatives and the certificate that another one of the same measurement alone has."""
    own, others = record.measurement, other.measurement
    known = {cut.name for cut in own.cuts}
    cuts = (*own.cuts, *(cut for cut in others.cuts if cut.name not in known))
    either = {name: getattr(own, name) or getattr(others, name) for name in (*ALTERNATIVES, "certificate")}
    return replace(record, measurement=replace(own, cuts=cuts, **either))


def _completeness(record: TuningRecord) -> tuple[bool, int, int]:
    """Sort key: the record's information that copies may lack."""
    measured = record.measurement
    return record.provenance.finals > 0, len(measured.alternatives), len(measured.detail)
