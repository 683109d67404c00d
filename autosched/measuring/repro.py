"""Reproduction of failed trials: keeps a folder for each, and repeats it.

tuning.jsonl.failures/
  wrong_result/
    3f9c2a71d0b46e55-8e1f06ab92c4/  the key of the workload, a hash of target and schedule
      record.json                   the tuning record: workload, target, schedule, status, detail, seed, versions
      kernel.py                     the source of the kernel, byte for byte
      README.txt                    the failure, and the command that repeats it
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

from autosched.backends.backend import CompileError
from autosched.backends.build import bound, render
from autosched.machine import devices
from autosched.machine.policies import POLICIES, check_timing
from autosched.measuring.local_measurer import LocalMeasurer
from search_spaces import DataError, InputError, Schedule, Target
from search_spaces.parsed_json import parsed
from search_spaces.plain_text import visible_lines
from tuning_logs import CHECK_FAILURES, Measurement, Status, TuningRecord

# Statuses of candidates that should have worked. The others reject a candidate that is in order.
GUILTY: frozenset[Status] = frozenset(
    ("compile_timeout", "compile_crash", "run_error", "run_timeout", "run_crash", "out_of_memory", *CHECK_FAILURES)
)
# Number of failures kept per status: one shows the fault, a few show a common cause, and frequent faults do not crowd
# out rare ones.
MOST_PER_STATUS = 5
_SUFFIXES = {"triton": ".py", "llvm": ".ll", "cuda": ".cu"}
_RECORD = "record.json"
_HASH_DIGITS = 12


@dataclass(frozen=True)
class Repeated:
    """Result of a repeated failed trial, and whether the source was still the same."""

    before: TuningRecord
    measurement: Measurement
    same_source: bool

    def __str__(self) -> str:
        before, now = self.before.measurement, self.measurement
        source = "" if self.same_source else "\nthe kernel is not the one that failed: the generator has changed since"
        detail = f": {now.detail}" if now.detail else ""
        return visible_lines(f"then {before.status}: {before.detail}\nnow {now.status}{detail}{source}")


def failures_folder(log: Path) -> Path:
    """The folder of a tuning log's failed trials."""
    return log.with_name(f"{log.name}.failures")


def keep(log: Path, record: TuningRecord, schedule: Schedule) -> Path | None:
    """Keep a failed trial next to the log; its folder, or None if there is nothing to keep or enough of its kind.

    `schedule` is the record's, bound to its search space. Raises nothing: a failed write is a warning.
    """
    if record.measurement.status not in GUILTY:
        return None
    kind = failures_folder(log) / record.measurement.status
    choice = json.dumps([record.target.key, record.backend, schedule.to_json()])
    place = kind / f"{record.workload.key}-{hashlib.sha256(choice.encode()).hexdigest()[:_HASH_DIGITS]}"
    try:
        kind.mkdir(parents=True, exist_ok=True)
        kept = [path for path in kind.iterdir() if not path.name.startswith(".")]
        if place in kept or len(kept) >= MOST_PER_STATUS:
            return None
        _write(place, record, schedule)
    except OSError as error:
        warnings.warn(f"{place}: the failed trial cannot be kept: {error}", stacklevel=2)
        return None
    return place


def repeat(folder: str | os.PathLike[str]) -> Repeated:
    """Measure a kept trial once more, on this machine and with the inputs of the run's seed.

    Raises:
        InputError: the folder has no failed trial, its backend is not installed, or its schedule is not of the search
            space derived here.
        TargetUnavailableError: its device is not here.
    """
    record = _read(Path(folder))
    schedule = bound(dataclasses.replace(record, target=devices.resolve(record.target)))
    source = _source(schedule, record.target)
    kept = next((path.read_text(encoding="utf-8", errors="replace") for path in Path(folder).glob("kernel.*")), "")
    check_timing(record.provenance.policy, record.target)
    policy = next(p for p in POLICIES if p == record.provenance.policy)
    with LocalMeasurer(record.target) as measurer:
        (measurement,) = measurer.measure(record.workload, [schedule], policy=policy, seed=record.provenance.seed)
    return Repeated(record, measurement, source == kept)


def _write(place: Path, record: TuningRecord, schedule: Schedule) -> None:
    """The whole folder or nothing: a process killed here leaves one whose name begins with a dot."""
    draft = Path(tempfile.mkdtemp(prefix=".", dir=place.parent))
    try:
        (draft / _RECORD).write_text(json.dumps(record.to_json(), indent=1), encoding="utf-8")
        kernel = draft / f"kernel{_SUFFIXES.get(record.backend, '.txt')}"
        kernel.write_text(_source(schedule, record.target), encoding="utf-8")
        (draft / "README.txt").write_text(_explanation(record, place), encoding="utf-8")
        draft.rename(place)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _source(schedule: Schedule, target: Target) -> str:
    try:
        return render(schedule, target)
    except (CompileError, InputError) as error:
        return f"{schedule.one_line}\ncannot be printed: {error}\n"


def _explanation(record: TuningRecord, place: Path) -> str:
    measurement = record.measurement
    return visible_lines(
        f"{record.workload.label} on {record.target.label}\n{record.schedule.one_line}\n\n"
        f"{measurement.status}: {measurement.detail}\n\n"
        f"Repeat it with\n\n    autosched repro {place.absolute()}\n"
    )


def _read(folder: Path) -> TuningRecord:
    try:
        return TuningRecord.from_json(parsed((folder / _RECORD).read_bytes()))
    except (OSError, DataError) as error:
        raise InputError(f"{folder} holds no failed trial ({error}); expected a folder under LOG.failures") from error
