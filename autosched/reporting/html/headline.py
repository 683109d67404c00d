"""The headline of a task: its first figures."""

from __future__ import annotations

from collections.abc import Iterator

from autosched.reporting.analysis.roofline import RooflinePosition
from autosched.reporting.analysis.summary import Summary
from autosched.reporting.analysis.tasks import median_interval
from autosched.reporting.html.markup import Markup, element
from tuning_logs.text import duration_text, span_text


def headline(of: Summary) -> Markup:
    """The figures that a reader looks for first: latency, speed-up, part of the roofline, trials."""
    return element("div", *(_stat(value, *remarks) for value, *remarks in _stats(of)), class_="key")


def _stat(value: str, *remarks: str) -> Markup:
    return element("div", element("b", value), *(element("span", remark) for remark in remarks))


def _stats(of: Summary) -> Iterator[tuple[str, ...]]:
    task = of.task
    if task.best is None:
        yield "no kernel", "no trial succeeded"
    else:
        latencies = task.best.measurement.latencies_s
        found = median_interval(latencies)
        known = f", 95 %: {duration_text(found.low)} to {duration_text(found.high)}" if found else ""
        yield duration_text(task.best.measurement.latency_s), f"median of {len(latencies)}{known}"
    if against := task.against_library:
        ends = f"95 %: {against.interval.low:.3f} to {against.interval.high:.3f}" if against.interval else "no interval"
        yield f"{against.ratio:.2f}×", f"as fast as the library; {ends}"
    if of.position is not None:
        yield f"{of.position.of_bound:.0%}", _bound_text(of.position)
    tried = len(task.trials)
    failed = f"{of.failed} failed" if of.failed else "none failed"
    yield f"{tried} trials", f"{failed}; {span_text(task.clock_s[-1])} of tuning"


def _bound_text(found: RooflinePosition) -> str:
    limit = "memory" if found.is_memory_bound else "arithmetic"
    beaten = "; above 100 %: operands in caches, masked work left out, or a higher clock" if found.of_bound > 1 else ""
    return f"of the speed that the device's nominal {limit} rate allows{beaten}"
