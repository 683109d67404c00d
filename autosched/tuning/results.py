"""Result of the search of one workload."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from autosched.kernels.kernel import Kernel, load_kernel
from autosched.machine.noise import why_disturbed
from autosched.tuning.effort import Rung, WorkSeconds, effort_lines, ladder
from autosched.tuning.remaining_gain import RemainingGain
from autosched.tuning.searching.guidance import Guidance
from autosched.tuning.searching.search import Ending, Search
from search_spaces import AutoschedError, Target, Workload
from tuning_logs import TuningRecord
from tuning_logs.intervals import Interval, paired_ratio, ratio_interval
from tuning_logs.text import duration_text, ratio_text


@dataclass(frozen=True, repr=False)
class TuneResult:
    """Result of a search.

    `best` is None when every trial failed; `backends` are those whose kernels were tried. `trials_done` schedules were
    measured now, `trials_known` came from the log. `failures` counts this run's failed trials by status, `all_failures`
    those of earlier runs, too. `ladder` has the candidates stopped by each rung, `work` the time by activity, `wall_s`
    the duration, the start of the workers included (of several concurrent searches, its part of the time); `disturbed`
    describes slowdowns of the machine meanwhile, if any. `ending` is the reason why it stopped: all was "known" before,
    the wanted number of "trials" was reached, it "converged" (too little was expected of more trials), the search space
    was "exhausted", its "time" was over, Ctrl-C "interrupted" it, or the workload is "unfit": its data does not fit
    here. `remaining_gain` is the expected gain of more trials, None without a kernel. `guidance` has the sources of its
    warm start, and their gain or loss. `lost` counts the schedules that the measurer never answered; `losses` are the
    machines of a fleet that were lost meanwhile, with the reasons.
    """

    workload: Workload
    target: Target
    best: TuningRecord | None
    backends: tuple[str, ...]
    trials_done: int
    trials_known: int
    failures: tuple[tuple[str, int], ...]
    all_failures: tuple[tuple[str, int], ...]
    ladder: tuple[Rung, ...]
    work: WorkSeconds
    wall_s: float
    disturbed: str | None
    ending: Ending
    remaining_gain: RemainingGain | None
    guidance: Guidance
    log: Path
    lost: int = 0
    losses: tuple[str, ...] = ()

    @staticmethod
    def of(search: Search) -> TuneResult:
        """Result of a search that has ended."""
        return TuneResult(
            workload=search.space.workload,
            target=search.space.target,
            best=search.best,
            backends=tuple(search.space.backends),
            trials_done=len(search.trials),
            trials_known=search.known_before,
            failures=search.failures,
            all_failures=search.all_failures,
            ladder=ladder(search.strategy.stopped, search.trials, len(search.finals)),
            work=sum(map(WorkSeconds.of, search.trials), WorkSeconds(log=search.log_s)),
            wall_s=search.wall_s,
            disturbed=why_disturbed(r.measurement for r in search.trials),
            ending=search.ending,
            remaining_gain=search.remaining_gain,
            guidance=search.guidance,
            log=search.log.path,
            lost=search.lost,
            losses=search.losses,
        )

    @cached_property
    def kernel(self) -> Kernel:
        """The best kernel, built on demand; checked, too, unless a trial of this machine has done that.

        Raises:
            AutoschedError: no trial succeeded, or the kernel is not right here.
        """
        if self.best is None:
            shown = ", ".join(f"{n} {status}" for status, n in self.all_failures)
            why = f"no trial succeeded ({shown}); `autosched log show` says why" if shown else "no trial was made"
            raise AutoschedError(f"{self.workload.label}: {why}")
        return load_kernel(self.best, self.workload)

    @property
    def latency_s(self) -> float | None:
        """Latency of the best kernel; None without one."""
        return self.best.measurement.latency_s if self.best else None

    @property
    def speedup(self) -> float | None:
        """Speedup over the vendor's library: the median ratio of rounds of both; None without it."""
        best = self.best.measurement if self.best else None
        return paired_ratio(best.library_s, best.paired_s) if best and best.library_s else None

    @property
    def speedup_interval(self) -> Interval | None:
        """The 95 % confidence interval of `speedup`; None with fewer than six rounds."""
        best = self.best.measurement if self.best else None
        return ratio_interval(best.library_s, best.paired_s) if best and best.library_s else None

    @property
    def report(self) -> str:
        """Candidates stopped by each rung of the ladder, time by activity, disturbances of the machine, as text."""
        lines = effort_lines(self.ladder, self.work, self.wall_s, self.trials_done)
        lost = f"lost by the measurer, and not in the log: {self.lost} schedules" if self.lost else None
        machines = [f"lost meanwhile, its schedules went elsewhere: {loss}" for loss in self.losses]
        gain = f"what is left to gain: {self.remaining_gain}" if self.remaining_gain else None
        by_histogram = self.best.measurement.by_histogram if self.best else ()
        each = ", ".join(f"{name} {duration_text(seconds)}" for name, seconds in by_histogram)
        segments = f"by histogram of segments: {each}" if each else None
        return "\n".join(
            [*lines, *self.guidance.lines, *filter(None, (self.disturbed, lost, *machines, segments, gain))]
        )

    def __repr__(self) -> str:
        return f"<TuneResult {self}>"

    def __str__(self) -> str:
        best = f"kernel alone {duration_text(self.best.measurement.latency_s)}" if self.best else "no kernel"
        maker = f" by {self.best.backend}" if self.best and len(self.backends) > 1 else ""
        against = f", {ratio_text(self.speedup, self.speedup_interval)} the library" if self.speedup else ""
        failed = "".join(f", {n} {status}" for status, n in self.failures)
        why: dict[Ending, str] = {
            "known": "all known from the log, no trial was needed" if self.trials_known else "not tried",
            "trials": f"{self.trials_done} trials in {self.wall_s:.1f} s, {self.trials_known} known before",
            "converged": f"stopped after {self.trials_done} trials in {self.wall_s:.1f} s, {self.trials_known} known "
            f"before, with {self.remaining_gain}",
            "exhausted": f"the whole search space: {self.trials_done} trials now, {self.trials_known} known before",
            "time": f"{self.trials_done} trials until its time was over, {self.wall_s:.1f} s, {self.trials_known} "
            "known before",
            "unfit": "its inputs cannot be set up here",
            "interrupted": f"interrupted after {self.trials_done} trials, {self.trials_known} known before; "
            "run it again to go on",
        }
        guided = f"; {self.guidance}" if self.trials_done and self.guidance.sources else ""
        what = f"{self.workload.label} on {self.target.label}"
        return f"{what}: {best}{maker}{against} ({why[self.ending]}{failed}{guided})"
