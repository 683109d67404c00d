"""Storage of predictions: next to a tuning log, in a file `<log>.predictions`, which is no log.

A line of JSON for every call of `predict`, only ever appended. A line that cannot be read is skipped with a warning.
The file may be deleted at any time, and copied to the machine that has the device.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path

from autosched.replaying.predictions import FORM, Predictions
from search_spaces import DataError, LogError, Target, Workload
from search_spaces.devices.target import family_of
from search_spaces.parsed_json import parsed
from tuning_logs.storage.appending import append_line


class PredictionFile:
    """The predictions stored next to a tuning log."""

    def __init__(self, log: Path) -> None:
        self.path = log.with_name(f"{log.name}.{FORM}")

    def add(self, predictions: Predictions) -> None:
        """Append them; they replace earlier ones of their workload, target and policy.

        Raises:
            LogError: the file cannot be written.
        """
        try:
            append_line(self.path, json.dumps(predictions.to_json(), allow_nan=False))
        except OSError as error:
            raise LogError(f"cannot write {self.path}: {error.strerror or error}") from error

    def latest(self, workload: Workload, target: Target, policy: str) -> Predictions | None:
        """The last that were added for these three; else for another card of the GPU's family.

        A user who predicts for "v100" does not know which V100 it will be.
        """
        found = [p for p in self if (p.workload.key, p.policy) == (workload.key, policy)]
        own = [p for p in found if p.target.key == target.key]
        alike = own or [p for p in found if _are_of_a_family(p.target, target)]
        return alike[-1] if alike else None

    def __iter__(self) -> Iterator[Predictions]:
        """All that were added, oldest first.

        Raises:
            LogError: the file exists but cannot be read.
        """
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        except OSError as error:
            raise LogError(f"cannot read {self.path}: {error.strerror or error}") from error
        for place, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield Predictions.from_json(parsed(line))
            except DataError as error:
                warnings.warn(f"{self.path}, line {place}: skipped, no predictions ({error})", stacklevel=2)


def _are_of_a_family(one: Target, other: Target) -> bool:
    same = one.kind == other.kind == "gpu" and one.capability == other.capability
    return same and family_of(one.name) == family_of(other.name)
