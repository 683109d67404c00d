"""The rows of a benchmark, and figures derived from them. Only measured figures are in here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from autosched.baselines.names import COMPILED_BASELINES, BaselineName
from autosched.bench.peaks import Peaks, dot_flops
from autosched.bench.suites.suite import CLASS, Case, SuiteKind
from autosched.comparing.compare import Comparison, Row, Verdict
from autosched.machine.policies import Policy
from autosched.tracing import TracedFunction
from autosched.tuning.history import TuningHistory
from search_spaces import Target, Workload
from tuning_logs.intervals import Interval


@dataclass(frozen=True)
class Ratio:
    """A baseline's latency over the tuned kernel's; above 1, the tuned one is faster."""

    value: float
    interval: Interval | None


@dataclass(frozen=True)
class BenchRow:
    """Result of one case: a comparison, or `why_not`.

    `tuning` is None if the tuned log has no records of it: the kernel came with autosched then, and the cost of finding
    it is unknown.
    """

    case: Case
    comparison: Comparison | None = None
    tuning: TuningHistory | None = None
    why_not: str = ""

    @property
    def tuned_s(self) -> float | None:
        """The median latency of the tuned kernel."""
        return self.comparison.rows[0].median_s if self.comparison else None

    def baseline(self, name: BaselineName) -> Row | None:
        """A baseline as it was measured; None when it was not."""
        return next((row for row in self._measured if row.name == name), None)

    def ratio(self, name: str) -> Ratio | None:
        """The baseline of that name against the tuned kernel; None when it was not measured."""
        if self.comparison is None or all(row.name != name for row in self._measured):
            return None
        return Ratio(self.comparison.speedup(name), self.comparison.speedup_interval(name))

    def verdict(self, name: str) -> Verdict | None:
        """Verdict from the interval of that ratio; None if it was not measured."""
        return self.comparison.verdict(name) if self.comparison and self.ratio(name) else None

    @property
    def op(self) -> Workload | TracedFunction | None:
        """The measured operator or function, if any."""
        return self.comparison.op if self.comparison else None

    def best_baseline(self, among: Collection[str]) -> Row | None:
        """The measured one of these with the lowest median."""
        measured = [row for row in self._measured if row.name in among]
        return min(measured, key=lambda row: row.median_s, default=None)

    def part_of_peak(self, peaks: Peaks) -> float | None:
        """The rate of the tuned kernel's dots as a part of the measured peak; None without dots."""
        rate = peaks.dot_rate(self.op) if self.op else None
        return dot_flops(self.op) / self.tuned_s / rate if self.op and self.tuned_s and rate else None

    def part_of_roofline(self, peaks: Peaks) -> float | None:
        """The measured roofline's bound as a part of the tuned kernel's latency."""
        bound = peaks.bound_s(self.op) if self.op else None
        return bound / self.tuned_s if bound and self.tuned_s else None

    @property
    def _measured(self) -> Sequence[Row]:
        rows = self.comparison.rows[1:] if self.comparison else ()
        return [row for row in rows if row.latencies_s]


@dataclass(frozen=True)
class BenchTable:
    """A suite measured in one run; the ratios are against its first baseline.

    `command` is the one that was run; `versions` name device, driver and everything else that the figures depend on.
    The table grows as cases are measured: `ended` is empty at its end, or else the reason why it is incomplete.
    """

    suite: str
    target: Target
    policy: Policy
    baselines: tuple[BaselineName, ...]
    peaks: Peaks
    command: str
    versions: tuple[tuple[str, str], ...]
    rows: tuple[BenchRow, ...] = ()
    ended: str = "not yet ended"
    kind: SuiteKind = "gemm"

    @property
    def rivals(self) -> tuple[BaselineName, ...]:
        """The baselines whose best is compared with the tuned kernel: the compiled ones, except for products."""
        return tuple(b for b in self.baselines if self.kind == "gemm" or b in COMPILED_BASELINES)

    def ratios(self, name: BaselineName | None) -> list[tuple[str, float]]:
        """Case and ratio, of all cases where that baseline was measured; None for the best rival of every case."""
        return [(row.case.name, ratio.value) for row, against in self._against(name) if (ratio := row.ratio(against))]

    @property
    def classes(self) -> tuple[BenchTable, ...]:
        """The table by class: those that the suite names, with their rows; none if there are fewer than two."""
        named = dict.fromkeys(dict(row.case.facts).get(CLASS, "") for row in self.rows)
        rows = {name: tuple(r for r in self.rows if dict(r.case.facts).get(CLASS) == name) for name in named if name}
        return tuple(replace(self, suite=name, rows=of) for name, of in rows.items()) if len(rows) > 1 else ()

    def verdicts(self, name: BaselineName | None) -> Counter[Verdict]:
        """Counts of the verdicts from the intervals of these ratios."""
        return Counter(verdict for row, against in self._against(name) if (verdict := row.verdict(against)))

    def _against(self, name: BaselineName | None) -> Iterator[tuple[BenchRow, str]]:
        for row in self.rows:
            if name is not None:
                yield row, name
            elif best := row.best_baseline(self.rivals):
                yield row, best.name
