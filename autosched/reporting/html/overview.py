"""The overview of many tasks: a table to be sorted, with links to their sections."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autosched.reporting.analysis.summary import Summary
from autosched.reporting.analysis.tasks import Speedup
from autosched.reporting.analysis.trace import trace
from autosched.reporting.html.charts.strips import bar, mark
from autosched.reporting.html.charts.trace_charts import spark
from autosched.reporting.html.markup import Markup, element
from autosched.reporting.html.scales import Scale
from tuning_logs.text import duration_text

# Twice as fast or slow is at the edge.
_TRACK = Scale(0.5, 2.0, 0, 100, is_log=True)
# Columns with the class of each: figures are at the right, and narrow screens lack the wide ones.
_COLUMNS = (
    ("kernel", ""),
    ("device", "wide"),
    ("best", "n"),
    ("against the library", ""),
    ("of bound", "n medium"),
    ("trials", "n medium"),
    ("failed", "n wide"),
    ("best over trials", "wide"),
)


def overview(found: Sequence[Summary], linked: int) -> Markup:
    """The table; the first `linked` tasks have sections."""
    head = element("tr", *(element("th", element("button", name), class_=of or None) for name, of in _COLUMNS))
    body = (_row(one, number < linked) for number, one in enumerate(found))
    return element("table", element("thead", head), element("tbody", *body), class_="overview")


def speedups_text(found: Sequence[Summary]) -> str:
    """The geometric mean of the speedups over the library, and the number of slower kernels."""
    ratios = [one.task.against_library.ratio for one in found if one.task.against_library]
    if not ratios:
        return "no kernel was timed with the library"
    mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    slower = sum(
        s.interval is not None and s.interval.high < 1 for s in (one.task.against_library for one in found) if s
    )
    behind = f"{slower} slower beyond noise" if slower else "none slower beyond noise"
    return f"{mean:.2f}× the library in the geometric mean of {len(ratios)}, {behind}"


def _row(one: Summary, is_linked: bool) -> Markup:
    task, best, position = one.task, one.task.best, one.position
    label = task.subject.label
    name = element("a", label, href=f"#{one.anchor}") if is_linked else label
    latency = best.measurement.latency_s if best else None
    cells = [
        _cell("", label, name, *([element("small", " stale")] if one.stale else []), class_="name"),
        _cell("wide", task.target.label, task.target.label, element("br"), element("small", task.policy)),
        _cell("n", latency, duration_text(latency) if latency else "none"),
        _against(task.against_library),
        _cell("n medium", position.of_bound if position else None, f"{position.of_bound:.0%}" if position else ""),
        _cell("n medium", len(task.trials), str(len(task.trials))),
        _cell("n wide", one.failed, str(one.failed)),
        _cell("wide", "", spark(trace(task))),
    ]
    return element("tr", *cells)


def _cell(of: str, value: str | float | None, *children: str, class_: str = "") -> Markup:
    """A cell, and the value that sorts it: figures to all of their digits."""
    shown = "" if value is None else repr(value) if isinstance(value, float) else value
    return element("td", *children, class_=" ".join(filter(None, (of, class_))) or None, data_v=shown)


def _against(speedup: Speedup | None) -> Markup:
    if speedup is None:
        return _cell("", None, "")
    marks = [mark(_TRACK(1.0), "one")]
    if speedup.interval:
        marks.append(bar(_TRACK(speedup.interval.low), _TRACK(speedup.interval.high), ""))
    marks.append(mark(_TRACK(speedup.ratio), "win"))
    return _cell("", speedup.ratio, f"{speedup.ratio:.2f}×", element("span", *marks, class_="track"))
