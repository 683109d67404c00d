"""Results of the searches for the kernels of a traced function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from autosched.tracing import LoadedFunction, Traced, TracedFunction, loaded
from autosched.tuning.many.spent import Spent, report_parts, spent_lines
from autosched.tuning.results import TuneResult


@dataclass(frozen=True, repr=False)
class TracedTuneResult:
    """The results of one search per workload of `traced`, over all of its cuts, each once.

    `spent` has the trials of each.
    """

    traced: Traced
    spent: tuple[Spent, ...]

    @property
    def results(self) -> tuple[TuneResult, ...]:
        return tuple(spent.result for spent in self.spent)

    @cached_property
    def kernel(self) -> LoadedFunction:
        """The function by its best kernels, built on demand, in the fastest of its cuts.

        Raises:
            AutoschedError: each cut has a workload of which no trial succeeded; or the kernels, together, do not
                compute what the function does.
        """
        succeeded = {r.workload.key for r in self.results if r.best is not None}
        complete = any(all(w.key in succeeded for w in cut.workloads) for cut in self.traced.cuts)
        needed = succeeded if complete else succeeded | {w.key for w in self.traced.workloads}
        kernels = {r.workload.key: r.kernel for r in self.results if r.workload.key in needed}
        function = loaded(self.traced, kernels)
        function.ensure_right()
        return function

    @property
    def latency_s(self) -> float | None:
        """Latency of all launches in the fastest cut; None while every cut lacks a kernel."""
        seconds = {r.workload.key: r.best.measurement.latency_s for r in self.results if r.best is not None}
        cut = self.traced.fastest(seconds)
        return cut.latency_s(seconds) if all(w.key in seconds for w in cut.workloads) else None

    @property
    def wall_s(self) -> float:
        """Duration of all searches."""
        return sum(r.wall_s for r in self.results)

    @property
    def report(self) -> str:
        """Trials of each kernel with reasons, every batch, and the report of every search."""
        if not self.traced.workloads:
            return str(self)
        return "\n\n".join(["\n".join(spent_lines(self.spent, self.latency_s)), *report_parts(self.spent)])

    def __repr__(self) -> str:
        return f"<TracedTuneResult {self}>"

    def __str__(self) -> str:
        if not self.traced.workloads:
            return f"{self.traced.label}: nothing to tune, PyTorch computes all of it"
        if len(self.traced.cuts) == 1:
            return "\n".join([self.traced.label, *(f"  {result}" for result in self.results)])
        return "\n".join([self.traced.label, *(line for cut in self.traced.cuts for line in self._lines_of(cut))])

    def _lines_of(self, cut: Traced) -> Iterator[str]:
        """One cut of the function: its number of kernels, a mark if it is the fastest, and each kernel's result."""
        found = {r.workload.key: r for r in self.results}
        seconds = {key: r.best.measurement.latency_s for key, r in found.items() if r.best is not None}
        count = len(cut.launched) if isinstance(cut, TracedFunction) else len(cut.workloads)
        complete = all(w.key in seconds for w in cut.workloads)
        taken = ", the fastest cut" if complete and self.traced.fastest(seconds).workloads == cut.workloads else ""
        yield f"  {count} kernel{'s' if count != 1 else ''}{taken}"
        yield from (f"    {found[w.key]}" for w in cut.workloads if w.key in found)
