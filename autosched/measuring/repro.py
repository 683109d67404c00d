"""Repeats a failed trial from what was kept of it (`measuring.failures`)."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path

from autosched.backends.build import bound
from autosched.machine import devices
from autosched.machine.policies import POLICIES, check_timing
from autosched.measuring.failures import RECORD, source_of
from autosched.measuring.local_measurer import LocalMeasurer
from search_spaces import DataError, InputError
from search_spaces.parsed_json import parsed
from search_spaces.plain_text import visible_lines
from tuning_logs import Measurement, TuningRecord


@dataclass(frozen=True)
class Repeated:
    """Result of a repeated failed trial, and whether the source was still the same."""

    before: TuningRecord
    measurement: Measurement
    same_source: bool

    def __str__(self) -> str:
        before, now = self.before.measurement, self.measurement
        source = "" if self.same_source else "\nthe kernel is not what failed then: the generator has changed since"
        detail = f": {now.detail}" if now.detail else ""
        return visible_lines(f"then {before.status}: {before.detail}\nnow {now.status}{detail}{source}")


def repeat(folder: str | os.PathLike[str]) -> Repeated:
    """Measure a kept trial once more, on this machine and with the inputs of the run's seed.

    Raises:
        InputError: the folder has no failed trial, its backend is not installed, or its schedule is not of the search
            space derived here.
        TargetUnavailableError: its device is not here.
    """
    record = _read(Path(folder))
    schedule = bound(dataclasses.replace(record, target=devices.resolve(record.target)))
    source = source_of(schedule, record.target)
    kept = next((path.read_text(encoding="utf-8", errors="replace") for path in Path(folder).glob("kernel.*")), "")
    check_timing(record.provenance.policy, record.target)
    policy = next(p for p in POLICIES if p == record.provenance.policy)
    with LocalMeasurer(record.target) as measurer:
        (measurement,) = measurer.measure(record.workload, [schedule], policy=policy, seed=record.provenance.seed)
    return Repeated(record, measurement, source == kept)


def _read(folder: Path) -> TuningRecord:
    try:
        return TuningRecord.from_json(parsed((folder / RECORD).read_bytes()))
    except (OSError, DataError) as error:
        raise InputError(f"{folder} holds no failed trial ({error}); expected a folder under LOG.failures") from error
