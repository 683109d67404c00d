"""Allocation of the trials of several searches, with reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autosched.tuning.many.gradient import Turn
from autosched.tuning.results import TuneResult
from autosched.tuning.searching.search import Search
from tuning_logs.text import duration_text, table_lines

_COLUMNS = ("kernel", "weight", "trials", "known", "first", "best", "share", "gain a turn", "to gain", "why")


@dataclass(frozen=True)
class Spent:
    """Trials spent on one kernel.

    `weight` is that of a second of its latency: 0 in a cut of a function that is clearly slower than another one.
    `first_s` is the best of as many trials as a first batch has, those of earlier runs included, None if all of them
    failed; `turns` are its batches, in order. Gains are in seconds of the weighted sum.
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


def spent_on(
    searches: Sequence[Search], weights: Sequence[float], turns: Sequence[Sequence[Turn]]
) -> tuple[Spent, ...]:
    """Trials spent on searches that have ended."""
    columns = zip(searches, weights, turns, strict=True)
    return tuple(Spent(TuneResult.of(s), weight, s.first_s, tuple(given)) for s, weight, given in columns)


def spent_lines(spent: Sequence[Spent], weighted_s: float | None) -> Iterator[str]:
    """A table of the trials of each kernel with reasons; `weighted_s` is the sum of which each has a share."""
    return table_lines([_COLUMNS, *(_row(s, weighted_s) for s in spent)], right=range(1, 9))


def _row(spent: Spent, weighted_s: float | None) -> tuple[str, ...]:
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
        f"{100 * part / weighted_s:.0f} %" if part and weighted_s else "",
        duration_text(gained / len(later)) if later else "",
        f"{100 * result.remaining_gain.expected:.1f} %" if result.remaining_gain else "",
        ", ".join(f"{count} {why}" for why, count in Counter(turn.why for turn in turns).most_common()),
    )


def report_parts(spent: Sequence[Spent]) -> Iterator[str]:
    """Every batch, in the order of their ends: its kernel, reason, expected and actual gain.

    The report of every search that did anything follows.
    """
    yield "\n".join(table_lines(list(_turn_rows(spent)), right=(0, 2, 3, 4)))
    yield from (f"{s.result.workload.label}\n{s.result.report}" for s in spent if s.result.trials_done)


def _turn_rows(spent: Sequence[Spent]) -> Iterator[tuple[str, ...]]:
    yield "turn", "kernel", "trials", "expected", "gained", "why"
    labelled = [(turn, s.result.workload.label) for s in spent for turn in s.turns]
    for turn, label in sorted(labelled, key=lambda pair: pair[0].number):
        expected = "" if turn.expected_s is None else duration_text(turn.expected_s)
        yield str(turn.number), label, str(turn.trials), expected, duration_text(turn.gained_s), turn.why
