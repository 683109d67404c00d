"""What tuning the workloads of a traced function found."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from autosched.tracing.callables.traced import LoadedFunction, Traced, loaded

if TYPE_CHECKING:
    from autosched.tuning.tuner import TuneResult


@dataclass(frozen=True)
class TracedTuneResult:
    """The results of one search per workload of `traced`, in the order in which its kernels run."""

    traced: Traced
    results: tuple[TuneResult, ...]

    @cached_property
    def kernel(self) -> LoadedFunction:
        """The function by its best kernels, built when first asked for; the faster way to cut it, where there are two.

        Raises:
            AutoschedError: no trial of a workload succeeded.
        """
        needed = {w.key for w in self.traced.workloads}
        succeeded = (r for r in self.results if r.best is not None or r.workload.key in needed)
        return loaded(self.traced, {r.workload.key: r.kernel for r in succeeded})

    @property
    def wall_s(self) -> float:
        """How long all searches took."""
        return sum(r.wall_s for r in self.results)

    @property
    def report(self) -> str:
        """The report of every search."""
        if not self.traced.workloads:
            return str(self)
        return "\n\n".join(f"{r.workload.label}\n{r.report}" for r in self.results)

    def __str__(self) -> str:
        if not self.traced.workloads:
            return f"{self.traced.label}: nothing to tune, PyTorch computes all of it"
        return "\n".join([self.traced.label, *(f"  {result}" for result in self.results)])
