"""The charts of one task, each with its title and caption."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from autosched.reporting.analysis.effects import knob_effects
from autosched.reporting.analysis.finals import Finalist
from autosched.reporting.analysis.model_rounds import ModelRound
from autosched.reporting.analysis.summary import Summary
from autosched.reporting.analysis.tasks import Task
from autosched.reporting.analysis.trace import trace
from autosched.reporting.html.charts.certificate_chart import certificate_chart
from autosched.reporting.html.charts.effects_chart import effects_chart
from autosched.reporting.html.charts.effort_charts import rungs_chart, work_chart
from autosched.reporting.html.charts.finals_chart import finals_chart
from autosched.reporting.html.charts.roofline_chart import roofline_chart
from autosched.reporting.html.charts.rounds_chart import rounds_chart
from autosched.reporting.html.charts.trace_charts import trace_charts
from autosched.reporting.html.markup import Markup, element
from autosched.strategies import Stopped
from autosched.tuning.effort import WorkSeconds, ladder
from tuning_logs import TuningRecord

_MOST_REASONS = 5
_REASON_LENGTH = 200
_TRACE_CAPTION = (
    "Dots are trials, the line is the best so far. The slowest are at the upper edge; ticks at the foot are failures."
)
_FINALS_CAPTION = (
    "Latency over the winner's in the same rounds, with 95 % intervals; labels are the knobs that differ. Hollow: no "
    "slower beyond noise than the winner, which was tried first. The library may be beyond the edge."
)
_CERTIFICATE_CAPTION = (
    "Latency of the other over the winner's in paired rounds, with 95 % intervals; small ticks: the rounds that began "
    "with the winner (above) and with the other (below). Itself: what the method says of no difference."
)
_EFFECTS_CAPTION = (
    "Dot: the fastest trial with this value over the fastest of all. Tick: the median one. Right: the dot's figure, "
    "and trials. ✓: the winner's. Knobs that the latency depends on most come first; a value that was tried seldom may "
    "be better than it looks."
)
_ROOFLINE_CAPTION = "Roofs are nominal rates of the device. Filled: the best kernel; hollow: the library."
_ROUNDS_CAPTION = (
    "Spearman's correlation of predictions made before a round with what it measured; the model is fitted to the "
    "trials before, and to no other log. Hollow: the analytic estimate alone."
)
_RUNGS_CAPTION = (
    "Grey went on, blue was no better than others (the same binary, clearly slower, or not among the finalists), "
    "orange failed."
)
_MODELS_CAPTION = "Latency without the alternative over that with it: above 1 the alternative is faster."


def figures(of: Summary, finals: list[Finalist], rounds: list[ModelRound]) -> Iterator[Markup]:
    """The charts that the task has figures for, in their order on the page."""
    task, best = of.task, of.task.best
    for chart, name in zip(
        trace_charts(trace(task), of.position.library_s if of.position else None), ("trials", "time"), strict=False
    ):
        yield _figure(f"Best over {name}", chart, _TRACE_CAPTION if name == "trials" else "")
    yield from _unless_none("Finals", finals_chart(finals, task.against_library), _FINALS_CAPTION)
    if best is not None and (certificate := best.measurement.certificate):
        yield from _unless_none("Certificate", certificate_chart(certificate), _CERTIFICATE_CAPTION)
    if best is not None:
        chosen = {"backend": best.backend, "sketch": best.schedule.sketch, **best.schedule.knobs}
        effects = effects_chart(knob_effects(task.trials), chosen)
        yield from _unless_none("Effects of decisions", effects, _EFFECTS_CAPTION)
    if of.position is not None:
        yield from _unless_none("Roofline", roofline_chart(of.position), _ROOFLINE_CAPTION)
    yield from _unless_none("The cost model, round by round", rounds_chart(rounds), _ROUNDS_CAPTION)
    rungs = [rung for rung in ladder(Stopped(0, 0), task.trials, len(finals)) if task.trials]
    yield from _unless_none(
        "Trials by the rung that stopped them", rungs_chart(rungs), _RUNGS_CAPTION, _reasons(task.trials)
    )
    work = sum(map(WorkSeconds.of, task.trials), WorkSeconds())
    yield from _unless_none("Seconds of work", work_chart(work), "Summed over processes, which overlap.")
    yield from _unless_none("Within compiled models", _alternatives(task), _MODELS_CAPTION)


def _figure(title: str, chart: Markup, caption: str, *below: Markup) -> Markup:
    remark = [element("figcaption", caption)] if caption else []
    return element("figure", element("h3", title), chart, *remark, *below)


def _unless_none(title: str, chart: Markup | None, caption: str, *below: Markup) -> Iterable[Markup]:
    return () if chart is None else (_figure(title, chart, caption, *below),)


def _reasons(trials: Iterable[TuningRecord]) -> Markup:
    """The most frequent kinds of failure, each with the most frequent of its reasons."""
    failed = [r.measurement for r in trials if not r.measurement.ok]
    items = []
    for status, count in Counter(m.status for m in failed).most_common(_MOST_REASONS):
        details = Counter(m.detail for m in failed if m.status == status and m.detail).most_common(1)
        detail = f": {details[0][0][:_REASON_LENGTH]}" if details else ""
        items.append(element("li", f"{count} {status.replace('_', ' ')}{detail}"))
    return element("ul", *items, class_="reasons") if items else Markup("")


def _alternatives(task: Task) -> Markup | None:
    """The latest record in which alternatives within compiled models were timed."""
    timed = next((r for r in reversed(task.records) if r.measurement.alternatives), None)
    if timed is None:
        return None
    rows = [
        element(
            "tr",
            element("td", f"{kind} {found.name}"),
            element("td", f"{found.ratio:.2f}× ({found.low:.2f}–{found.high:.2f})"),
            element("td", "taken" if found.taken else ""),
        )
        for kind, found in timed.measurement.named_alternatives
    ]
    return element("table", element("tbody", *rows))
