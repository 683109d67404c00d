"""Stability of searches: how often searches of a workload end with the same kernel, and what is lost where not.

Every search has its own seed and log, and starts from nothing. Winners whose printed sources differ are then timed in
interleaved rounds of one run: latencies of different searches do not compare.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from torch import Tensor

from autosched.bench.suites.suite import Suite
from autosched.comparing.compare import compare_kernel
from autosched.kernels.kernel import Kernel
from autosched.machine.policies import Policy, check_timing
from autosched.replaying.arguments import check_integer
from autosched.tuning.progress import progress_display
from autosched.tuning.results import TuneResult
from autosched.tuning.terminal import say
from autosched.tuning.tuner import tune
from search_spaces import AutoschedError, InputError, Schedule, Target, Workload
from tuning_logs.intervals import Interval, paired_ratio, ratio_interval
from tuning_logs.text import first_line

_SAME_SCHEDULE, _SAME_TEXT = "same schedule", "same text"
_MOST_KNOBS = 4


@dataclass(frozen=True)
class StabilityPlan:
    """Settings: `trials` of every search, the number of `searches` of every workload, the seed of the first of them,
    and the number of interleaved rounds (None: as many as fit two seconds).

    Raises:
        InputError: a setting is not allowed.
    """

    target: Target
    trials: int = 300
    searches: int = 2
    seed: int = 0
    policy: Policy = "cold"
    rounds: int | None = None

    def __post_init__(self) -> None:
        check_timing(self.policy, self.target)
        for name, value, least in (("trials", self.trials, 1), ("searches", self.searches, 2), ("seed", self.seed, 0)):
            check_integer(name, value, least)
        if self.rounds is not None:
            check_integer("rounds", self.rounds, 1)


@dataclass(frozen=True)
class Winners:
    """The winners of the searches of one workload, in order; and the latencies of those with different sources.

    `sources`: the fingerprints of their printed sources. `latencies_s`: by source, of every interleaved round; empty
    where there is one source. `why_not`: the reason that there are none, where a search found no kernel.
    """

    name: str
    schedules: tuple[Schedule, ...] = ()
    sources: tuple[str, ...] = ()
    latencies_s: Mapping[str, Sequence[float]] | None = None
    why_not: str = ""

    @property
    def same_schedule(self) -> bool:
        return len(set(self.schedules)) == 1

    @property
    def same_text(self) -> bool:
        return len(set(self.sources)) == 1

    @property
    def loss(self) -> float:
        """Excess of the slowest winner's latency over the fastest's, as a fraction; 0 for one text."""
        return paired_ratio(*self._extremes) - 1 if self.latencies_s else 0.0

    @property
    def interval(self) -> Interval | None:
        """The 95 % confidence interval of the ratio; None with fewer than six rounds, or for one text."""
        return ratio_interval(*self._extremes) if self.latencies_s else None

    @property
    def is_tie(self) -> bool:
        """True if the rounds do not separate the slowest from the fastest."""
        return self.interval is None or 1.0 in self.interval

    @property
    def _extremes(self) -> tuple[Sequence[float], Sequence[float]]:
        assert self.latencies_s is not None
        ranked = sorted(self.latencies_s.values(), key=statistics.median)
        return ranked[-1], ranked[0]

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Name, agreement, loss with its interval, and knobs that differ."""
        if self.why_not:
            return self.name, "failed", "", self.why_not
        if self.same_text:
            return self.name, _SAME_SCHEDULE if self.same_schedule else _SAME_TEXT, "", ""
        ends = f" ({self.interval.low:.3f}–{self.interval.high:.3f})" if self.interval else ""
        tie = ", a tie" if self.is_tie else ""
        different = f"{len(set(self.sources))} of {len(self.sources)} different"
        return self.name, different, f"{1 + self.loss:.3f}x{ends}{tie}", _differing(self.schedules)


def run_stability(
    suite: Suite, plan: StabilityPlan, folder: Path, console: Console, progress: Console
) -> tuple[Winners, ...]:
    """Search and compare workload by workload; a line is printed for each when it is done, and a summary at the end.

    The logs are `seed_<n>.jsonl` in `folder`: a second call there measures nothing again. A workload that fails costs
    its own line. `progress`: where searches tell how far they are.

    Raises:
        KeyboardInterrupt: what was measured is in the logs, and its lines and their summary are printed.
        LogError: a log cannot be written.
    """
    widths = [max(map(len, ("workload", *(case.name for case in suite.cases)))), len(_SAME_SCHEDULE), 29]
    head = ("workload", "winners", "slowest against fastest", "knobs that differ")
    say(console, _line(head, widths))
    found: list[Winners] = []
    try:
        for case in suite.cases:
            found.append(_winners(case.name, case.op, plan, folder, progress))
            say(console, _line(found[-1].cells, widths))
    finally:
        say(console, *summary_lines(found, plan))
    return tuple(found)


def summary_lines(found: Sequence[Winners], plan: StabilityPlan) -> Iterator[str]:
    """The number of workloads with one winner, and the loss of the slowest where there are several."""
    made = [w for w in found if not w.why_not]
    different = [w for w in made if not w.same_text]
    text = f"{sum(w.same_text for w in made)} the same text, {sum(w.same_schedule for w in made)} the same schedule"
    yield f"{len(made)} workload{'s' * (len(made) != 1)}, {plan.searches} searches of {plan.trials} trials each: {text}"
    slower = [w for w in different if not w.is_tie]
    if different:
        yield f"of the other {len(different)}, {len(different) - len(slower)} tie"
    if slower:
        worst, mean = max(slower, key=lambda w: w.loss), sum(w.loss for w in slower) / len(made)
        yield f"the slowest winner loses {worst.loss:.2%} at most ({worst.name}), and {mean:.2%} in the mean of all"


def _winners(name: str, op: object, plan: StabilityPlan, folder: Path, progress: Console) -> Winners:
    if not isinstance(op, Workload):
        raise InputError(f"{name} is a function; expected a suite of operators")
    try:
        results = [_search(op, plan, seed, folder, progress) for seed in range(plan.seed, plan.seed + plan.searches)]
        # By source, each once: a search whose winner prints the same has the same kernel.
        kernels = {str(r.kernel.artefact.facts.source): r.kernel for r in results}
        sources = tuple(str(r.kernel.artefact.facts.source) for r in results)
        latencies = _timed(kernels, plan) if len(kernels) > 1 else None
    except AutoschedError as error:
        return Winners(name, why_not=first_line(error))
    return Winners(name, tuple(r.kernel.schedule.unbound for r in results), sources, latencies)


def _search(op: Workload, plan: StabilityPlan, seed: int, folder: Path, progress: Console) -> TuneResult:
    with progress_display(progress) as show:
        result = tune(
            op,
            plan.target,
            plan.trials,
            seed=seed,
            log=folder / f"seed_{seed}.jsonl",
            history=(),
            policy=plan.policy,
            on_progress=show,
        )
    if result.ending == "interrupted":
        raise KeyboardInterrupt
    return result


def _timed(kernels: Mapping[str, Kernel], plan: StabilityPlan) -> dict[str, Sequence[float]]:
    """Seconds of every kernel in every round; each writes to memory of its own."""
    (first, kernel), *others = kernels.items()
    calls = {source: _into_own(other) for source, other in others}
    rows = compare_kernel(kernel, policy=plan.policy, rounds=plan.rounds, baselines=calls)
    return {first: rows.row("tuned").latencies_s, **{source: rows.row(source).latencies_s for source, _ in others}}


def _into_own(kernel: Kernel) -> Callable[..., object]:
    outs = tuple(output.allocated() for output in kernel.outputs)
    out: Tensor | tuple[Tensor, ...] = outs[0] if len(outs) == 1 else outs
    return lambda *inputs: kernel(*inputs, out=out)


def _differing(schedules: Sequence[Schedule]) -> str:
    """`tile_k 32 | 64, num_warps 4 | 8`, of as many knobs as fit a line; of different sketches, their names."""
    sketches = list(dict.fromkeys(" ".join(filter(None, (s.backend, s.sketch))) for s in schedules))
    if len(sketches) > 1:
        return " | ".join(sketches)
    values = {
        name: list(dict.fromkeys(_text(dict(s.values).get(name)) for s in schedules)) for name, _ in schedules[0].values
    }
    told = [f"{name} {' | '.join(several)}" for name, several in values.items() if len(several) > 1]
    more = [f"and {len(told) - _MOST_KNOBS} more"] if len(told) > _MOST_KNOBS else []
    return ", ".join([*told[:_MOST_KNOBS], *more])


def _text(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
    return "  ".join([*padded, *cells[len(widths) :]]).rstrip()
