"""A tuning record: one trial, with everything needed to understand it, rank it and repeat it. One JSON line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from search_spaces import DataError, InputError, Schedule, Target, Workload
from search_spaces.parsed_json import members, number, refused_as_data, text, whole, word
from tuning_logs.measurement import Measurement
from tuning_logs.own_kernel import OwnKernel
from tuning_logs.times import LATEST_S, LONGEST_S
from tuning_logs.versions import Versions, versions_from_json

# Raised when a line written before can no longer be read with its meaning.
SCHEMA_VERSION = 1
# The backend of records that name none: there was one for each kind of target.
_FIRST_BACKENDS = {"cpu": "llvm", "gpu": "triton"}

_ORIGIN = ("generator", "policy", "unix_s", "seed", "trial", "versions")

# The subject of a search.
Subject = Workload | OwnKernel


@dataclass(frozen=True)
class Provenance:
    """The origin of a measurement.

    `generator` is a hash of the code that lowered and printed: another one may have made the same kernels. `policy` is
    the timing policy ("cold", "hot", "graph" or "model"); records of different policies are not ranked together.
    `unix_s` is the time, `seed` and `trial` the position in its run, `versions` those of the machine that measured.

    `finals` is 0 for a trial. Finalists are measured again, interleaved with each other, and their new records have the
    moment of these finals, in milliseconds since 1970: they supersede the trials of the same schedules, and only
    figures of one moment compare fairly.

    `propose_s` is its share of the time that proposing its batch took.
    """

    generator: str
    policy: str
    unix_s: float
    seed: int
    trial: int
    versions: Versions = ()
    finals: int = 0
    propose_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "propose_s": round(self.propose_s, 6), "versions": dict(self.versions)}

    @staticmethod
    def from_json(data: Any) -> Provenance:
        """Raises DataError."""
        given = members(data, "provenance", _ORIGIN, ("finals", "propose_s"))
        return Provenance(
            generator=text(given["generator"], "generator"),
            policy=word(given["policy"], "policy"),
            unix_s=number(given["unix_s"], "unix_s", most=LATEST_S),
            seed=whole(given["seed"], "seed"),
            trial=whole(given["trial"], "trial"),
            versions=versions_from_json(given["versions"]),
            finals=whole(given.get("finals", 0), "finals"),
            propose_s=number(given.get("propose_s", 0.0), "propose_s", most=LONGEST_S),
        )


@dataclass(frozen=True)
class TuningRecord:
    """A trial: subject, target, schedule and its backend, measurement, and provenance.

    The subject is a workload, for which autosched makes kernels, or a kernel of the user's own.
    """

    subject: Subject
    target: Target
    schedule: Schedule
    measurement: Measurement
    provenance: Provenance = field(compare=False)

    @property
    def workload(self) -> Workload:
        """The workload; InputError for a user's own kernel, which has none."""
        if isinstance(self.subject, OwnKernel):
            raise InputError(f"{self.subject.label} is a kernel of your own: only a call of it makes or runs it")
        return self.subject

    @property
    def key(self) -> tuple[str, str]:
        """The key it is filed under: of the subject's structure, and of the device."""
        return self.subject.key, self.target.key

    @property
    def backend(self) -> str:
        """The name of the backend that made the kernel of the schedule."""
        return self.schedule.backend

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA_VERSION,
            "workload": self.subject.to_json(),
            "target": self.target.to_json(),
            "schedule": self.schedule.to_json(),
            "backend": self.backend,
            "measurement": self.measurement.to_json(),
            "provenance": self.provenance.to_json(),
        }

    @staticmethod
    def from_json(data: Any) -> TuningRecord:
        """The record of a parsed line.

        Raises:
            DataError: the line is not a record of this schema; the message says why.
        """
        given = members(data, "record")
        subject, target = subject_and_target(given)
        return record_of(subject, target, given)


def subject_and_target(data: Any) -> tuple[Subject, Target]:
    """Subject and target of a parsed line, both hashable.

    Raises:
        DataError: the line is not a record of this schema.
    """
    given = members(data, "record")
    if given.get("schema") != SCHEMA_VERSION:
        raise DataError(f"schema {given.get('schema')!r:.60}, expected {SCHEMA_VERSION}")
    members(given, "record", ("workload", "target"))
    with refused_as_data():
        subject, target = subject_of(given["workload"]), Target.from_json(given["target"])
        # Its key is made here, where an odd workload costs its own line alone.
        hash(subject)
    return subject, target


def record_of(subject: Subject, target: Target, data: Any) -> TuningRecord:
    """The record of a line of that subject and target.

    Raises:
        DataError: the rest of the line is not that of a record of this schema.
    """
    given = members(data, "record", ("schedule", "measurement", "provenance"))
    with refused_as_data():
        backend = text(given.get("backend", _FIRST_BACKENDS[target.kind]), "backend")
        return TuningRecord(
            subject=subject,
            target=target,
            schedule=Schedule.from_json(given["schedule"], backend),
            measurement=Measurement.from_json(given["measurement"]),
            provenance=Provenance.from_json(given["provenance"]),
        )


def subject_of(data: Any) -> Subject:
    """The subject of a parsed line.

    Raises:
        DataError, InputError: it has none.
    """
    return OwnKernel.from_json(data) if OwnKernel.is_json(data) else Workload.from_json(data)
