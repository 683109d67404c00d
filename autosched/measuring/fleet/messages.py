"""Messages between the searching process and the nodes of a fleet: text in the JSON of records, and binaries.

Nothing in them is code of Python, so that what a node runs is what is installed there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autosched.backends.backend import Artefact
from autosched.machine.policies import POLICIES, Policy
from search_spaces import DataError, Schedule, Workload
from search_spaces.parsed_json import array, members, number, parsed, text
from tuning_logs import CompileFacts, Measurement
from tuning_logs.times import LONGEST_S, SHORTEST_S

# The text of an artefact, and its binaries.
Packed = tuple[str, tuple[bytes, ...]]


def task_text(workload: Workload, policy: Policy) -> str:
    return json.dumps({"workload": workload.to_json(), "policy": policy})


def task_of(message: str) -> tuple[Workload, Policy]:
    """Raises DataError."""
    given = members(parsed(message), "task", ("workload", "policy"))
    policy = next((p for p in POLICIES if p == given["policy"]), None)
    if policy is None:
        raise DataError(f"policy {given['policy']!r}; expected one of {', '.join(POLICIES)}")
    return Workload.from_json(given["workload"]), policy


def schedules_text(schedules: Sequence[Schedule]) -> str:
    return json.dumps([{"schedule": s.to_json(), "backend": s.backend} for s in schedules])


def schedules_of(message: str) -> list[Schedule]:
    """The unbound schedules. Raises DataError."""
    given = [members(one, "schedule", ("schedule", "backend")) for one in array(parsed(message), "schedules")]
    return [Schedule.from_json(one["schedule"], text(one["backend"], "backend")) for one in given]


@dataclass(frozen=True)
class Answer:
    """Measurements of a job, in the order of its schedules; or why its workload is unfit for the device.

    Without either the job was cancelled, or its schedules could not be timed together. `library_s` is the latency of
    the vendor's library, None while it is unknown.
    """

    measurements: tuple[Measurement, ...] = ()
    library_s: float | None = None
    unfit: str = ""

    def to_text(self) -> str:
        measured = [m.to_json() for m in self.measurements]
        return json.dumps({"measurements": measured, "library_s": self.library_s, "unfit": self.unfit})

    @staticmethod
    def from_text(message: str) -> Answer:
        """Raises DataError."""
        given = members(parsed(message), "answer", ("measurements", "library_s", "unfit"))
        measured = tuple(Measurement.from_json(m) for m in array(given["measurements"], "measurements"))
        library_s = given["library_s"]
        if library_s is not None:
            library_s = number(library_s, "library_s", SHORTEST_S, LONGEST_S)
        return Answer(measured, library_s, text(given["unfit"], "unfit"))


def packed(artefact: Artefact) -> Packed:
    fields: dict[str, Any] = {
        "backend": artefact.backend,
        "source": artefact.source,
        "facts": artefact.facts.to_json(),
        "launch": artefact.launch,
    }
    return json.dumps(fields), artefact.binaries


def unpacked(message: Packed) -> Artefact:
    """Raises DataError."""
    given = members(parsed(message[0]), "artefact", ("backend", "source", "facts", "launch"))
    facts = CompileFacts.from_json(given["facts"])
    backend, source, launch = (text(given[name], name) for name in ("backend", "source", "launch"))
    return Artefact(backend, source, tuple(message[1]), facts, launch)
