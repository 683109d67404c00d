"""Predictions: schedules ranked by a cost model for a device, with predicted latencies. None of it was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autosched.backends.build import render
from search_spaces import DataError, Schedule, Target, Workload
from search_spaces.parsed_json import array, members, number, refused_as_data, text, word
from tuning_logs import CompileFacts
from tuning_logs.text import duration_text, table_lines

# The name distinguishes their file from a tuning log. The number is raised when older files would be read wrongly.
FORM = "predictions"
_VERSION = 1
_COLUMNS = ("", "predicted", "interval", "registers", "spills", "shared memory", "schedule")
_PAST_SCHEDULE = 6


@dataclass(frozen=True)
class Prediction:
    """A schedule and its predicted latency: predicted, never measured.

    `within_s` is the interval of latencies of held-out kernels with such a prediction, as the basis of all predictions
    says; None where nothing could be held out. `facts` are the compiler's facts on the kernel for this very target;
    `drawback` is the reason why it is ranked after others that are predicted to be slower: it does not compile, or
    spills.
    """

    schedule: Schedule
    predicted_s: float
    within_s: tuple[float, float] | None
    facts: CompileFacts | None
    drawback: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "backend": self.schedule.backend,
            "schedule": self.schedule.to_json(),
            "predicted_s": float(f"{self.predicted_s:.4g}"),
            "within_s": [float(f"{s:.4g}") for s in self.within_s] if self.within_s else None,
            "facts": self.facts.to_json() if self.facts else None,
            "drawback": self.drawback,
        }

    @staticmethod
    def from_json(data: Any) -> Prediction:
        """Raises DataError."""
        fields = members(data, "prediction", ("schedule", "backend", "predicted_s", "within_s", "facts", "drawback"))
        within = None
        if fields["within_s"] is not None:
            low, high = (float(number(s, "within_s")) for s in array(fields["within_s"], "within_s", (2,)))
            within = low, high
        return Prediction(
            schedule=Schedule.from_json(fields["schedule"], text(fields["backend"], "backend")),
            predicted_s=float(number(fields["predicted_s"], "predicted_s")),
            within_s=within,
            facts=CompileFacts.from_json(fields["facts"]) if fields["facts"] is not None else None,
            drawback=text(fields["drawback"], "drawback"),
        )


@dataclass(frozen=True, repr=False)
class Predictions:
    """The schedules of a workload that are predicted to be fastest on a target, the most promising first.

    `basis` describes the training records, and the source of the intervals. `policy` is the timing policy of these
    records.
    """

    workload: Workload
    target: Target
    policy: str
    ranked: tuple[Prediction, ...]
    basis: str

    @property
    def best(self) -> Prediction:
        return self.ranked[0]

    @property
    def source(self) -> str:
        """The generated source text of the first; needs neither a compiler nor the device.

        Raises:
            InputError: it was read from a file, and is not bound to a search space.
        """
        return render(self.best.schedule, self.target)

    def __repr__(self) -> str:
        expected = duration_text(self.best.predicted_s)
        return f"<Predictions {self.workload.label} on {self.target.label}: {expected} predicted, never measured>"

    def __str__(self) -> str:
        head = f"{self.workload.label} on {self.target.label}: predicted, never measured"
        rows = [_COLUMNS, *(_row(number, p) for number, p in enumerate(self.ranked, 1))]
        return "\n".join([head, *(f"  {line}" for line in table_lines(rows, right=range(_PAST_SCHEDULE))), self.basis])

    def to_json(self) -> dict[str, Any]:
        """Everything; `"measured": false` marks it for readers of the figures alone."""
        return {
            FORM: _VERSION,
            "measured": False,
            "workload": self.workload.to_json(),
            "target": self.target.to_json(),
            "policy": self.policy,
            "ranked": [p.to_json() for p in self.ranked],
            "basis": self.basis,
        }

    @staticmethod
    def from_json(data: Any) -> Predictions:
        """Inverse of `to_json`, with unbound schedules. Raises DataError for anything else."""
        fields = members(data, FORM)
        if fields.get(FORM) != _VERSION:
            raise DataError(f"{FORM} {fields.get(FORM)!r:.60}, expected {_VERSION}")
        members(fields, FORM, ("workload", "target", "policy", "ranked", "basis"))
        with refused_as_data():
            workload = Workload.from_json(fields["workload"])
            hash(workload)
        return Predictions(
            workload=workload,
            target=Target.from_json(fields["target"]),
            policy=word(fields["policy"], "policy"),
            ranked=tuple(map(Prediction.from_json, array(fields["ranked"], "ranked"))),
            basis=text(fields["basis"], "basis"),
        )


def _row(number: int, prediction: Prediction) -> tuple[str, ...]:
    facts, schedule = prediction.facts or CompileFacts(0.0), prediction.schedule
    behind = f" (behind: {prediction.drawback})" if prediction.drawback else ""
    return (
        str(number),
        duration_text(prediction.predicted_s),
        " – ".join(map(duration_text, prediction.within_s)) if prediction.within_s else "unknown",
        _amount(facts.registers),
        _amount(facts.spill_bytes, " B"),
        _amount(facts.shared_memory_bytes, " B"),
        f"{schedule.backend}: {schedule.one_line}{behind}",
    )


def _amount(amount: int | None, unit: str = "") -> str:
    return "–" if amount is None else f"{amount}{unit}"
