"""`compare`: tuned kernels against everything else that computes the same, in interleaved rounds of one run."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from autosched.backends.environment import environment
from autosched.baselines.baselines import library_settings
from autosched.baselines.names import USUAL_BASELINES, Baselines, split_baselines
from autosched.checking.histograms import over, timed_ends
from autosched.checking.random_inputs import random_inputs
from autosched.comparing.agreement import why_disagrees
from autosched.comparing.contenders import Contender, contenders
from autosched.kernels.kernel import Kernel
from autosched.machine import devices, timing
from autosched.machine.library_precision import LibraryPrecision
from autosched.machine.noise import slowed_text
from autosched.machine.policies import Policy, check_timing, policy_text
from autosched.machine.timing import Run, Timer, WatchedTimer, activations_of, timer_for
from autosched.replaying.arguments import check_integer, check_policy, check_workload
from autosched.replaying.replay import replay
from autosched.tracing import TracedFunction, TracedKernel
from autosched.tracing.callables.random_arguments import random_arguments, timed_bounds
from autosched.tracing.callables.traced import why_not_one
from cost_models import bound_s
from search_spaces import AutoschedError, InputError, Target, Workload
from tuning_logs.intervals import Interval, paired_ratio, ratio_interval
from tuning_logs.text import duration_text, ratio_text, table_lines

# Seed of the input data: any, but the same for every run.
_SEED = 0
# Widest interval around 1 that counts as even: five per cent is a gain for which a kernel is chosen.
_NARROW = 0.05
# Default number of rounds: as many as fit two seconds. From thirty on an interval of the median depends on noise and no
# longer on luck, and two hundred narrow it to a third of that.
_TIMING_S = 2.0
_FEWEST_ROUNDS = 30
_MOST_ROUNDS = 200

Verdict = Literal["faster", "slower", "even", "too noisy", "too few rounds"]


@dataclass(frozen=True)
class Row:
    """Measurement of one contender.

    `latencies_s` are the measured repeats; empty if it was not measured, with the reason in `note`. `predicted_s` is a
    bound or estimate, and never stands with the measured figures. `name` is "tuned", a baseline's, or "roofline";
    `compile_s` is the time of torch.compile, where it was used; `way` the fastest of a library's, if it has several.
    """

    label: str
    latencies_s: tuple[float, ...] = ()
    note: str = ""
    predicted_s: float | None = None
    name: str = ""
    compile_s: float | None = None
    way: str = ""

    @property
    def median_s(self) -> float:
        return statistics.median(self.latencies_s)

    @property
    def quartiles_s(self) -> tuple[float, float]:
        """The 25th and the 75th percentile."""
        if len(self.latencies_s) < 2:
            return self.median_s, self.median_s
        low, _, high = statistics.quantiles(self.latencies_s, n=4, method="inclusive")
        return low, high


@dataclass(frozen=True, repr=False)
class Comparison:
    """The rows of one run; the first is the tuned kernel.

    `threads` is for both sides, and 0 on a GPU. `slowdowns` has the core's slowdown, against its best, for every round
    (`Timer.slowdown`). Latencies are geometric means over `histograms` of segments, where there are any.
    """

    op: Workload | TracedFunction
    target: Target
    threads: int
    rows: tuple[Row, ...]
    versions: tuple[tuple[str, str], ...] = ()
    policy: Policy = "cold"
    slowdowns: tuple[float, ...] = ()
    histograms: tuple[str, ...] = ()

    def row(self, label: str) -> Row:
        """The row of that name, or the first whose label starts like that.

        Raises:
            InputError: there is none.
        """
        for row in self.rows:
            if row.name == label or row.label.startswith(label):
                return row
        raise InputError(f"no row {label!r} (there are: {', '.join(r.label for r in self.rows)})")

    def speedup(self, label: str) -> float:
        """Speedup of the tuned kernel over that row: the median of the ratios of every round.

        Disturbances of a whole round (clocks, neighbours) slow both sides, so the ratio is steadier than either time.
        """
        return paired_ratio(self.row(label).latencies_s, self.rows[0].latencies_s)

    def speedup_interval(self, label: str) -> Interval | None:
        """Its 95 % confidence interval, by a bootstrap over the rounds; None with fewer than six rounds."""
        return ratio_interval(self.row(label).latencies_s, self.rows[0].latencies_s)

    def verdict(self, label: str) -> Verdict:
        """Verdict from the interval: the tuned kernel is faster, slower or even, or the machine was too noisy."""
        interval = self.speedup_interval(label)
        if interval is None:
            return "too few rounds"
        if 1.0 not in interval:
            return "faster" if interval.low > 1.0 else "slower"
        return "even" if interval.width <= _NARROW else "too noisy"

    @property
    def precision(self) -> LibraryPrecision | None:
        """The precision of both sides' products and convolutions on a GPU; None without operands of float32."""
        products = self.target.kind != "cpu" and "float32" in self.op.contracted
        return _precision(self.op) if products else None

    def __repr__(self) -> str:
        others = ", ".join(f"{r.label} {duration_text(r.median_s)}" for r in self.rows if r.latencies_s)
        return f"<Comparison {self.op.label} on {self.target.label}: {others}>"

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def compare(
    op: Workload | TracedFunction,
    target: str | Target | None = None,
    *,
    log: str | os.PathLike[str] | None = None,
    policy: Policy = "cold",
    rounds: int | None = 30,
    baselines: Baselines = USUAL_BASELINES,
    inputs: Sequence[torch.Tensor] | None = None,
) -> Comparison:
    """Time the best known kernel of `op`, or those of a traced function, against everything else, and the roofline.

    The others are PyTorch, torch.compile and the vendor's library. All are timed in `rounds` interleaved rounds (None:
    as many as fit two seconds, 30 to 200), on the same `inputs` (None: random ones), by `policy`: with "cold" caches,
    with "hot" ones, from a CUDA "graph", or as within a "model"; on a CPU with as many threads on both sides as the
    target has. The tuned kernel and the library write to a preallocated output. `baselines` are of `BASELINES`:
    "cublaslt" is the library's call with cuBLASLt preferred, "max-autotune" torch.compile in the mode that measures
    several kernels, without CUDA graphs; it may take minutes to compile. A dictionary may have functions of your own
    that take the same inputs, by name: `{"library": None, "mine": function}`; their results are not checked. PyTorch
    forgets what torch.compile has compiled in this process before, so that earlier variants do not count against its
    limit.

    A traced function is compared with itself ("eager"), and itself compiled: all of them, and the kernels, allocate
    their results. Before anything is timed, the kernels' results are checked against the function in float64
    (`autosched.comparing.agreement`).

    Raises:
        InputError: an argument is not allowed, or no log has a kernel (tune first).
        TargetUnavailableError: this machine cannot run kernels for the target.
        LogError: a log cannot be read.
        AutoschedError: the kernels of a traced function do not compute what it does.
    """
    if why := why_not_one(op, "autosched.compare"):
        raise InputError(why)
    if not isinstance(op, TracedFunction):
        check_workload(op)
    check_policy(policy)
    _check_rounds(rounds)
    split_baselines(baselines)
    device = devices.resolve(target)
    check_timing(policy, device)
    kernel = replay(op, device, log=log, policy=policy)
    return compare_kernel(kernel, policy=policy, rounds=rounds, baselines=baselines, inputs=inputs)


def compare_kernel(
    kernel: Kernel | TracedKernel,
    *,
    policy: Policy = "cold",
    rounds: int | None = 30,
    baselines: Baselines = USUAL_BASELINES,
    inputs: Sequence[torch.Tensor] | None = None,
) -> Comparison:
    """The same for a given kernel.

    Raises:
        InputError: an argument is not allowed.
        AutoschedError: the kernels of a traced function do not compute what it does.
    """
    if why := why_not_one(kernel, "autosched.compare_kernel"):
        raise InputError(why)
    if not isinstance(kernel, Kernel | TracedKernel):
        raise InputError(f"got {type(kernel).__name__}; expected the kernel of an operator or of a traced function")
    if isinstance(kernel, TracedKernel) and not kernel.kernels:
        raise InputError(f"{kernel.traced.label} has no kernel: PyTorch computes all of it; expected one to compare")
    op, target = kernel.workload if isinstance(kernel, Kernel) else kernel.traced, kernel.target
    check_timing(policy, target)
    _check_rounds(rounds)
    wanted, own = split_baselines(baselines)
    given = _random_inputs(op, kernel.device) if inputs is None else inputs
    with library_settings(_precision(op), target), torch.no_grad():
        if isinstance(kernel, TracedKernel) and (wrong := why_disagrees(kernel, given)):
            raise AutoschedError(f"wrong results: {wrong}")
        operands = op.inputs if isinstance(op, Workload) else op.arguments
        activations = activations_of(operands, given)
        timer = timer_for(target, policy, products=bool(op.contracted), activations=lambda: activations)
        ends = _timed_ends(op, given) if inputs is None else {}
        timer = over(ends, given, timer)
        found = list(contenders(kernel, given, wanted, own, timer))
        timed = [c for c in found if isinstance(c, Contender)]
        calls = {c.name: c.call for c in timed}
        watched = WatchedTimer(timer)
        samples = timing.interleaved(calls, _rounds(calls, timer) if rounds is None else rounds, watched)
    measured = [Row(c.label, tuple(samples[c.name]), c.note, None, c.name, c.compile_s, c.way) for c in timed]
    absent = [Row(c.label, note=c.why, name=c.name) for c in found if not isinstance(c, Contender)]
    threads = target.threads if target.kind == "cpu" else 0
    rows = (*measured, *absent, _roofline(op, target))
    slowdowns = tuple(watched.slowdowns)
    return Comparison(op, target, threads, rows, environment(target), policy, slowdowns, tuple(ends))


def _random_inputs(op: Workload | TracedFunction, device: torch.device) -> list[torch.Tensor]:
    if isinstance(op, TracedFunction):
        return random_arguments(op, _SEED, device)
    return random_inputs(op, _SEED, device)


def _timed_ends(op: Workload | TracedFunction, given: Sequence[Tensor]) -> Mapping[str, Mapping[int, Tensor]]:
    return timed_bounds(op, given) if isinstance(op, TracedFunction) else timed_ends(op)


def _precision(op: Workload | TracedFunction) -> LibraryPrecision:
    return op.by_library if isinstance(op, TracedFunction) else LibraryPrecision.of(op.precision)


def _roofline(op: Workload | TracedFunction, target: Target) -> Row:
    """The nominal roofline; for several kernels the sum of theirs, including their intermediate tensors."""
    kernels = op.launched if isinstance(op, TracedFunction) else (op,)
    note = "no kernel is faster at the device's nominal rates"
    if target.kind == "cpu":
        note = "an estimate, no bound: a clock may be faster, operands may lie in a cache"
    note += f"; {len(kernels)} kernels" if len(kernels) > 1 else ""
    return Row("nominal roofline", note=note, predicted_s=sum(bound_s(w, target) for w in kernels), name="roofline")


def _check_rounds(rounds: int | None) -> None:
    if rounds is not None:
        check_integer("rounds", rounds, 1)


def _rounds(calls: Mapping[str, Run], timer: Timer) -> int:
    """Number of rounds that fit the time, estimated from one."""
    timing.interleaved(calls, 1, timer)
    begin = time.perf_counter()
    timing.interleaved(calls, 1, timer)
    # Warm-up calls are half of it, or a little less where caches are flushed before timed calls.
    round_s = (time.perf_counter() - begin) / 2
    return min(max(int(_TIMING_S / round_s), _FEWEST_ROUNDS), _MOST_ROUNDS)


def _lines(comparison: Comparison) -> Iterator[str]:
    """The comparison as a plain table."""
    op, target = comparison.op, comparison.target
    rate_name, amount = ("GFLOP/s", op.flops) if op.contracted else ("GB/s", op.min_bytes)
    over_all = f", means over {', '.join(comparison.histograms)} segments" if comparison.histograms else ""
    yield f"{op.label} on {target.label}, {policy_text(comparison.policy)}, whole calls{over_all}"
    table = [("", "median", "p25 – p75", rate_name, "tuned is faster", "", "")]
    for row in comparison.rows:
        if row.latencies_s:
            spread = " – ".join(map(duration_text, row.quartiles_s))
            rate = f"{amount / row.median_s / 1e9:.1f}"
            ratio, verdict = _ratio_cells(comparison, row)
            table.append((row.label, duration_text(row.median_s), spread, rate, ratio, verdict, row.note))
        elif row.predicted_s is not None:
            rate = f"{amount / row.predicted_s / 1e9:.1f}"
            predicted = f"estimate {duration_text(row.predicted_s)}, {rate} {rate_name}: {row.note}"
            table.append((row.label, "", "", "", "", "", predicted))
        else:
            table.append((row.label, "", "", "", "", "", row.note))
    yield from (f"  {line}" for line in table_lines(table, right=range(1, 5)))
    if comparison.precision is not None:
        yield f"  products of float32, on both sides: {comparison.precision}"
    yield from (f"  {line}" for line in _noise_lines(comparison))
    if comparison.versions:
        yield "  " + ", ".join(f"{name} {version}" for name, version in comparison.versions)


def _ratio_cells(comparison: Comparison, row: Row) -> tuple[str, str]:
    """Speedup of the tuned kernel over a row, with the interval; and the verdict where these do not show it."""
    if row is comparison.rows[0]:
        return "", ""
    ratio = ratio_text(comparison.speedup(row.label), comparison.speedup_interval(row.label))
    verdict = comparison.verdict(row.label)
    return ratio, verdict if verdict in ("even", "too noisy") else ""


def _noise_lines(comparison: Comparison) -> Iterator[str]:
    """Remarks on noise in the figures, if any."""
    others = [row.label for row in comparison.rows[1:] if row.latencies_s]
    unclear = [label for label in others if comparison.verdict(label) == "too noisy"]
    slowed = slowed_text(comparison.slowdowns, "rounds")
    if unclear:
        wide = f"intervals wider than {_NARROW:.0%} that contain 1"
        yield f"this machine was too noisy to tell tuned from {', '.join(unclear)} ({wide}); more rounds narrow them"
    if slowed:
        yield slowed
