"""What a search of many kernels found, where its trials went, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autosched.tuning.many.gradient import Turn
from autosched.tuning.results import TracedTuneResult, TuneResult
from search_spaces import Target
from tuning_logs.text import duration_text, table_lines

_COLUMNS = ("kernel", "weight", "trials", "known", "first", "best", "share", "gain a turn", "to gain", "why")


@dataclass(frozen=True)
class Spent:
    """Where the trials of one kernel went.

    `weight` is what a second of it counts: nothing in a way to cut a function that is clearly slower than another one.
    `first_s` is the best of its first batch, None when nothing succeeded in it; `turns` are its batches, in order. What
    they gain is in seconds of the weighted sum.
    """

    result: TuneResult
    weight: float
    first_s: float | None
    turns: tuple[Turn, ...]

    @property
    def weighted_s(self) -> float | None:
        """Its part of the weighted sum; None without a kernel."""
        best = self.result.best
        return self.weight * best.measurement.latency_s if best else None


@dataclass(frozen=True, repr=False)
class TuneManyResult:
    """What was found for several operators and functions together.

    `results` are those of what was given, in order, None where nothing can be tuned, and `weights` what they count;
    `refused` says why, by label. `spent` has every kernel once, with the trials that it was given; `wall_s` is how long
    all of it took.
    """

    target: Target
    results: tuple[TuneResult | TracedTuneResult | None, ...]
    weights: tuple[float, ...]
    refused: tuple[tuple[str, str], ...]
    spent: tuple[Spent, ...]
    wall_s: float

    @property
    def weighted_s(self) -> float:
        """The weighted sum of the latencies, functions in the fastest cut; what has no kernel is left out."""
        latencies = (result.latency_s if result else None for result in self.results)
        return sum(weight * s for weight, s in zip(self.weights, latencies, strict=True) if s is not None)

    @property
    def trials_done(self) -> int:
        return sum(s.result.trials_done for s in self.spent)

    @property
    def trials_known(self) -> int:
        return sum(s.result.trials_known for s in self.spent)

    @property
    def interrupted(self) -> bool:
        return any(s.result.ending == "interrupted" for s in self.spent)

    @property
    def report(self) -> str:
        """Every turn, in the order in which they ended: whose it was, why, what was expected of it and what it gained.

        The report of every search follows.
        """
        lines = table_lines(list(self._turn_rows()), right=(0, 2, 3, 4))
        searches = (f"{s.result.workload.label}\n{s.result.report}" for s in self.spent if s.result.trials_done)
        return "\n\n".join(["\n".join(lines), *searches])

    def _turn_rows(self) -> Iterator[tuple[str, ...]]:
        yield "turn", "kernel", "trials", "expected", "gained", "why"
        labelled = [(turn, s.result.workload.label) for s in self.spent for turn in s.turns]
        for turn, label in sorted(labelled, key=lambda pair: pair[0].number):
            expected = "" if turn.expected_s is None else duration_text(turn.expected_s)
            yield str(turn.number), label, str(turn.trials), expected, duration_text(turn.gained_s), turn.why

    def __repr__(self) -> str:
        return f"<TuneManyResult {len(self.spent)} kernels on {self.target.label}>"

    def __str__(self) -> str:
        counted = f"{self.trials_done} trials in {self.wall_s:.1f} s, {self.trials_known} known before"
        ended = "; interrupted, run it again to go on" if self.interrupted else ""
        head = f"{len(self.spent)} kernels on {self.target.label}: {duration_text(self.weighted_s)} weighted"
        refused = [f"{label}: {why}" for label, why in self.refused]
        return "\n".join([f"{head} ({counted}{ended})", *table_lines(self._rows(), right=range(1, 9)), *refused])

    def _rows(self) -> Sequence[Sequence[str]]:
        return [_COLUMNS, *(self._row(s) for s in self.spent)]

    def _row(self, spent: Spent) -> tuple[str, ...]:
        result, turns, part = spent.result, spent.turns, spent.weighted_s
        later = [turn for turn in turns if turn.why not in ("first", "no kernel")]
        gained = sum(turn.gained_s for turn in turns)
        return (
            result.workload.label,
            f"{spent.weight:g}",
            str(result.trials_done),
            str(result.trials_known),
            duration_text(spent.first_s) if spent.first_s else "",
            duration_text(result.best.measurement.latency_s) if result.best else "no kernel",
            f"{100 * part / self.weighted_s:.0f} %" if part else "",
            duration_text(gained / len(later)) if later else "",
            f"{100 * result.remaining_gain.expected:.1f} %" if result.remaining_gain else "",
            ", ".join(f"{count} {why}" for why, count in Counter(turn.why for turn in turns).most_common()),
        )
