"""Keeps what is needed to repeat a failed trial.

tuning.jsonl.failures/
  wrong_result/
    3f9c2a71d0b46e55-8e1f06ab92c4/  the key of the workload, a hash of target and schedule
      record.json                   the tuning record: workload, target, schedule, status, detail, seed, versions
      kernel.py                     the source of the kernel, byte for byte
      README.txt                    what happened, and the command that repeats it
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import warnings
from pathlib import Path

from autosched.backends.backend import CompileError
from autosched.backends.build import render
from search_spaces import InputError, Schedule, Target
from search_spaces.plain_text import visible_lines
from tuning_logs import CHECK_FAILURES, Status, TuningRecord

# Statuses of candidates that should have worked. The others reject a candidate that is in order.
GUILTY: frozenset[Status] = frozenset(
    ("compile_timeout", "compile_crash", "run_error", "run_timeout", "run_crash", "out_of_memory", *CHECK_FAILURES)
)
# Number of failures kept per status: one shows the fault, a few show a common cause, and frequent faults do not crowd
# out rare ones.
MOST_PER_STATUS = 5
_SUFFIXES = {"triton": ".py", "llvm": ".ll", "cuda": ".cu"}
RECORD = "record.json"
_HASH_DIGITS = 12


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


def _write(place: Path, record: TuningRecord, schedule: Schedule) -> None:
    """The whole folder or nothing: a process killed here leaves one whose name begins with a dot."""
    draft = Path(tempfile.mkdtemp(prefix=".", dir=place.parent))
    try:
        (draft / RECORD).write_text(json.dumps(record.to_json(), indent=1), encoding="utf-8")
        kernel = draft / f"kernel{_SUFFIXES.get(record.backend, '.txt')}"
        kernel.write_text(source_of(schedule, record.target), encoding="utf-8")
        (draft / "README.txt").write_text(_explanation(record, place), encoding="utf-8")
        draft.rename(place)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def source_of(schedule: Schedule, target: Target) -> str:
    """The kernel as it is printed, or why it cannot be."""
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
