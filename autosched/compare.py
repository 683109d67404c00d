"""`compare`: a tuned kernel against everything else that computes the same, timed interleaved in one run."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from autosched import devices, reference, timing
from autosched.arguments import check_integer, check_policy, check_workload
from autosched.baselines import Baseline, baseline, library_name
from autosched.kernel import Kernel, load_kernel
from autosched.replay import find_best, log_paths
from autosched.text import duration_text, table_lines
from autosched.timing import Policy
from cost_models import bound_s
from search_spaces import InputError, Target, Workload

# Seed of the input data: any, but the same for every run.
_SEED = 0
# Calls of the library before a search, for the progress display.
_LIBRARY_ROUNDS = 10


@dataclass(frozen=True)
class Row:
    """One way to compute the workload.

    `latencies_s` are the measured repeats; empty when it was not measured, and then `note` says why. `predicted_s` is a
    bound or estimate, and never stands with the measured figures.
    """

    label: str
    latencies_s: tuple[float, ...] = ()
    note: str = ""
    predicted_s: float | None = None

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


@dataclass(frozen=True)
class Comparison:
    """The rows of one run; the first is the tuned kernel. `threads` is for both sides, and 0 on a GPU."""

    workload: Workload
    target: Target
    threads: int
    rows: tuple[Row, ...]
    versions: tuple[tuple[str, str], ...] = ()

    def row(self, label: str) -> Row:
        """The row whose label starts like that.

        Raises:
            InputError: there is none.
        """
        for row in self.rows:
            if row.label.startswith(label):
                return row
        raise InputError(f"no row {label!r} (there are: {', '.join(r.label for r in self.rows)})")

    def speedup(self, label: str) -> float:
        """How many times faster the tuned kernel is than that row: the median of the ratios of every round.

        What slows a whole round (clocks, neighbours) slows both sides, so the ratio is steadier than either time.
        """
        return _speedup(self.rows[0], self.row(label))

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def compare(
    op: Workload,
    target: str | Target | None = None,
    *,
    log: str | os.PathLike[str] | None = None,
    policy: Policy = "cold",
    rounds: int = 30,
) -> Comparison:
    """Time the best known kernel of `op` against PyTorch, torch.compile and the vendor's library, and the roofline.

    All are called in turn, `rounds` times over, on the same inputs, with `policy` caches; on a CPU with as many threads
    on both sides as the target has. The tuned kernel and the library write to a preallocated output. PyTorch forgets
    what torch.compile has compiled in this process before, so that its limit on variants does not fall on this one.

    Raises:
        InputError: an argument is not allowed, or no log has a kernel (tune first).
        TargetUnavailableError: this machine cannot run kernels for the target.
        LogError: a log cannot be read.
    """
    check_workload(op)
    check_policy(policy)
    check_integer("rounds", rounds, 1)
    paths = log_paths(log)
    kernel = load_kernel(find_best(op, devices.resolve(target), paths, policy))
    return compare_kernel(kernel, policy=policy, rounds=rounds)


def compare_kernel(kernel: Kernel, *, policy: Policy = "cold", rounds: int = 30) -> Comparison:
    """The same for a kernel at hand.

    Raises:
        InputError: an argument is not allowed.
    """
    check_policy(policy)
    check_integer("rounds", rounds, 1)
    workload, target = kernel.workload, kernel.target
    inputs = reference.random_inputs(workload, _SEED, kernel.device)
    with _library_settings(workload, target), torch.no_grad():
        contenders, absent = _contenders(kernel, inputs)
        calls = {c.label: c.call for c in contenders}
        samples = timing.interleaved(calls, rounds, timing.timer_for(workload, target, policy))
    measured = [Row(c.label, tuple(samples[c.label]), c.note) for c in contenders]
    bound = Row("roofline", note="predicted from nominal rates", predicted_s=bound_s(workload, target))
    threads = target.threads if target.kind == "cpu" else 0
    return Comparison(workload, target, threads, (*measured, *absent, bound), devices.environment(target))


def library_latency(op: Workload, target: Target, policy: Policy = "cold") -> float | None:
    """Seconds that the vendor's library takes, measured now on `target`.

    None when it has no such operator, or cannot run it here, for want of memory say.
    """
    known = baseline(op)
    if known is None:
        return None
    try:
        return _timed_library(known, op, target, policy)
    except RuntimeError:
        # PyTorch's own, of many kinds: out of memory, a dtype that the library has no kernel for.
        return None


def _timed_library(known: Baseline, op: Workload, target: Target, policy: Policy) -> float:
    device = torch.device("cpu" if target.kind == "cpu" else "cuda")
    inputs = reference.random_inputs(op, _SEED, device)
    out = torch.empty(op.output.shape, dtype=reference.torch_dtype(op.output.dtype), device=device)
    eager, library = known.eager, known.library

    def call() -> object:
        return library(inputs, out) if library is not None else eager(*inputs)

    with _library_settings(op, target), torch.no_grad():
        samples = timing.interleaved({"library": call}, _LIBRARY_ROUNDS, timing.timer_for(op, target, policy))
    return statistics.median(samples["library"])


@dataclass(frozen=True)
class _Contender:
    label: str
    note: str
    call: Callable[[], object]


def _contenders(kernel: Kernel, inputs: Sequence[Tensor]) -> tuple[list[_Contender], list[Row]]:
    """What can be timed, the tuned kernel first; and rows that say why something cannot."""
    workload = kernel.workload
    into_out = "writes to a given output"

    def fresh_output() -> Tensor:
        return torch.empty(workload.output.shape, dtype=kernel.output_dtype, device=kernel.device)

    tuned_out = fresh_output()
    found = [_Contender("tuned", into_out, lambda: kernel(*inputs, out=tuned_out))]
    known = baseline(workload)
    if known is not None and known.library is not None:
        name, library, library_out = library_name(workload, kernel.device), known.library, fresh_output()
        found.append(_Contender(f"{name} library", f"{known.called}, {into_out}", lambda: library(inputs, library_out)))
    if known is not None:
        eager = known.eager
        found.append(_Contender("PyTorch eager", f"{known.called}, allocates", lambda: eager(*inputs)))
    parts = "one PyTorch call per operation, allocates"
    found.append(_Contender("as its parts", parts, lambda: reference.as_written(workload, inputs)))
    function = known.eager if known is not None else lambda *tensors: reference.as_written(workload, tensors)
    compiled = _compiled(function, inputs)
    if isinstance(compiled, str):
        return found, [Row("torch.compile", note=f"not available: {compiled}")]
    found.append(_Contender("torch.compile", "allocates", lambda: compiled(*inputs)))
    return found, []


def _compiled(function: Callable[..., Tensor], inputs: Sequence[Tensor]) -> Callable[..., Tensor] | str:
    """The function compiled by PyTorch, called once; or one line that says why it cannot be."""
    try:
        torch.compiler.reset()
        compiled = torch.compile(function, dynamic=False)
        compiled(*inputs)
    except (RuntimeError, OSError, ImportError) as error:
        # Inductor needs a C++ compiler or Triton; what it raises without one is a RuntimeError, of many kinds.
        return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return compiled


@contextmanager
def _library_settings(workload: Workload, target: Target) -> Iterator[None]:
    """PyTorch with as many threads as the kernel, and with the precision of dots that the workload asks for."""
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    if target.kind == "cpu":
        torch.set_num_threads(target.threads)
    torch.set_float32_matmul_precision("high" if workload.precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)


def _lines(comparison: Comparison) -> Iterator[str]:
    """The comparison as a plain table."""
    workload, target = comparison.workload, comparison.target
    rate_name, amount = ("GFLOP/s", workload.flops) if _is_compute_bound(workload) else ("GB/s", workload.min_bytes)
    on = f", {comparison.threads} thread{'s' * (comparison.threads != 1)}" if comparison.threads else ""
    yield f"{workload.label} on {target.device}{on}"
    table = [("", "median", "p25 – p75", rate_name, "tuned is faster", "")]
    for row in comparison.rows:
        if row.latencies_s:
            spread = " – ".join(map(duration_text, row.quartiles_s))
            rate = f"{amount / row.median_s / 1e9:.1f}"
            ratio = "" if row is comparison.rows[0] else f"{_speedup(comparison.rows[0], row):.2f}x"
            table.append((row.label, duration_text(row.median_s), spread, rate, ratio, row.note))
        elif row.predicted_s is not None:
            rate = f"{amount / row.predicted_s / 1e9:.1f}"
            predicted = f"{row.note}: {duration_text(row.predicted_s)}, {rate} {rate_name}"
            table.append((row.label, "", "", "", "", predicted))
        else:
            table.append((row.label, "", "", "", "", row.note))
    yield from (f"  {line}" for line in table_lines(table, right=range(1, 5)))
    if comparison.versions:
        yield "  " + ", ".join(f"{name} {version}" for name, version in comparison.versions)


def _speedup(tuned: Row, other: Row) -> float:
    return statistics.median(o / t for t, o in zip(tuned.latencies_s, other.latencies_s, strict=True))


def _is_compute_bound(workload: Workload) -> bool:
    return any(stage.is_contraction for stage in workload.stages)
