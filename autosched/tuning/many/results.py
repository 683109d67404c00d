"""Result of tuning many kernels, with the allocation of trials."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.tuning.many.spent import Spent, report_parts, spent_lines
from autosched.tuning.results import TuneResult
from autosched.tuning.searching.search import Ending
from autosched.tuning.traced_result import TracedTuneResult
from search_spaces import Target
from tuning_logs.text import duration_text


@dataclass(frozen=True, repr=False)
class TuneManyResult:
    """Results for several operators and functions together.

    `results` are those of the given ones, in order, None where nothing can be tuned, and `weights` their weights;
    `refused` has the reasons, by label. `spent` has every kernel once, with its trials; `wall_s` is the duration of all
    of it.
    """

    target: Target
    results: tuple[TuneResult | TracedTuneResult | None, ...]
    weights: tuple[float, ...]
    refused: tuple[tuple[str, str], ...]
    spent: tuple[Spent, ...]
    wall_s: float

    @property
    def weighted_s(self) -> float:
        """The weighted sum of the latencies, functions in the fastest cut; those without a kernel are left out."""
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
        return self._ended("interrupted")

    def _ended(self, ending: Ending) -> bool:
        return any(s.result.ending == ending for s in self.spent)

    @property
    def without_kernel(self) -> tuple[str, ...]:
        """The labels of operators and functions without a kernel after tuning."""
        return tuple(_label(r) for r in self.results if r is not None and r.latency_s is None)

    @property
    def report(self) -> str:
        """Every batch, and the report of every search."""
        return "\n\n".join(report_parts(self.spent))

    def __repr__(self) -> str:
        return f"<TuneManyResult {len(self.spent)} kernels on {self.target.label}>"

    def __str__(self) -> str:
        counted = f"{self.trials_done} trials in {self.wall_s:.1f} s, {self.trials_known} known before"
        early = "; its time was over" if self._ended("time") else ""
        ended = "; interrupted, run it again to go on" if self.interrupted else early
        none = f", without {', '.join(self.without_kernel)}: no kernel" if self.without_kernel else ""
        count = f"{len(self.spent)} kernel{'s' if len(self.spent) != 1 else ''}"
        head = f"{count} on {self.target.label}: {duration_text(self.weighted_s)} weighted{none}"
        refused = [f"{label}: {why}" for label, why in self.refused]
        return "\n".join([f"{head} ({counted}{ended})", *spent_lines(self.spent, self.weighted_s), *refused])


def _label(result: TuneResult | TracedTuneResult) -> str:
    return result.workload.label if isinstance(result, TuneResult) else result.traced.label
