"""`autosched log export`: the best of a log as compressed logs, such as those that ship with the package.

records/
  h200/                                      the target
    3f9c2a71d0b46e55_cold_matmul-m-512-….jsonl.gz  the key of the workload, the timing policy, the label
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autosched.backends.reproduction import Reproduction
from autosched.replaying.replay import MOST_PRINTED
from search_spaces import Target, Workload
from search_spaces.devices.target import GPUS
from tuning_logs import TuningLog, TuningRecord
from tuning_logs.export import worth_shipping
from tuning_logs.packing import PACKED_SUFFIX, packed_name, write_packed


@dataclass(frozen=True)
class Exported:
    """A compressed log that was written: the record that replays from it, and its number of records.

    `changed` is False if the same bytes were there before.
    """

    path: Path
    best: TuningRecord
    records: int
    changed: bool


def export(log: TuningLog, folder: Path, best: int = 200, target: str | None = None) -> Iterator[Exported]:
    """Write a compressed log for every workload, target and timing policy in `log` that has a successful record.

    Each replays the same record as the log. It has the `best` fastest and a few slower ones (`tuning_logs.export`) of
    the records whose kernels this version makes, or of all where it makes none. It replaces an earlier export of the
    same three; files of others stay. `target` restricts it to a target's name or device. The same log gives the same
    bytes. Records of kernels of the user's own are not exported: only a call of such a kernel uses them.

    Raises:
        LogError: the log cannot be read, or a file not be written.
    """
    for example in _tasks(log):
        here = example.target
        if target is None or target.lower() in (here.name.lower(), here.device.lower()):
            exported = _export_task(log, example, folder / folder_name(here), best)
            if exported is not None:
                yield exported


def folder_name(target: Target) -> str:
    """Folder of a target's records: its name for a listed GPU, else its key."""
    listed = GPUS.get(target.name)
    known = listed is not None and listed.key == target.key
    return target.name if known else re.sub(r"[^a-z0-9]+", "-", target.key.lower()).strip("-")


def _tasks(log: TuningLog) -> list[TuningRecord]:
    """The last record of every workload, target and timing policy, in the order of their first ones."""
    last: dict[tuple[str, str, str], TuningRecord] = {}
    for record in log:
        if isinstance(record.subject, Workload):
            last[*record.key, record.provenance.policy] = record
    return list(last.values())


def _export_task(log: TuningLog, example: TuningRecord, folder: Path, best: int) -> Exported | None:
    op, target, policy = example.workload, example.target, example.provenance.policy
    reproduction, records = Reproduction(MOST_PRINTED), log.records(op, target, policy)
    exact = log.best(op, target, policy, reproduction.is_exact)
    winner = exact or log.best(op, target, policy)
    if winner is None:
        return None
    if exact:
        records = list(filter(Reproduction().is_exact, records))
    records = worth_shipping(records, best)
    path = folder / packed_name(op, policy)
    changed = write_packed(path, records)
    # A workload may have had another name.
    for other in folder.glob(f"{op.key}_{policy}_*{PACKED_SUFFIX}"):
        if other != path:
            other.unlink()
    return Exported(path, winner, len(records), changed)
