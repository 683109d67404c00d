"""The section of one task: headline, certainty, charts, and the lines that repeat its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from autosched.machine.policies import policy_text
from autosched.reporting.analysis.certainty import certainty
from autosched.reporting.analysis.effects import knob_effects
from autosched.reporting.analysis.finals import Finalist, finalists
from autosched.reporting.analysis.model_rounds import ModelRound
from autosched.reporting.analysis.repeating import repeating_lines
from autosched.reporting.analysis.roofline import RooflinePosition, position
from autosched.reporting.analysis.tasks import Task, median_interval
from autosched.reporting.analysis.trace import trace
from autosched.reporting.certificates import certificate_facts
from autosched.reporting.html.charts.certificate_chart import certificate_chart
from autosched.reporting.html.charts.effects_chart import effects_chart
from autosched.reporting.html.charts.effort_charts import rungs_chart, work_chart
from autosched.reporting.html.charts.finals_chart import finals_chart, knob_text
from autosched.reporting.html.charts.roofline_chart import roofline_chart
from autosched.reporting.html.charts.rounds_chart import rounds_chart
from autosched.reporting.html.charts.trace_charts import trace_charts
from autosched.reporting.html.markup import Markup, element
from autosched.strategies import Stopped
from autosched.tuning.effort import WorkSeconds, ladder
from tuning_logs import TuningRecord
from tuning_logs.text import duration_text, span_text

_MOST_REASONS = 5
_REASON_LENGTH = 200


@dataclass(frozen=True)
class Drawn:
    """A section, and the figures of its task that the overview shows as well."""

    task: Task
    anchor: str
    position: RooflinePosition | None
    failed: int


def drawn(task: Task, anchor: str) -> Drawn:
    failed = sum(not record.measurement.ok for record in task.trials)
    return Drawn(task, anchor, position(task), failed)


def section(of: Drawn, rounds: list[ModelRound], only: bool) -> Markup:
    """The section; `only` is its own page, under the heading of the report."""
    task, finals = of.task, finalists(of.task)
    head = element("h1" if only else "h2", task.subject.label)
    parts = [head, element("p", _where(task), class_="sub"), _key(of, finals)]
    parts.append(element("p", " ".join(certainty(task, finals)), class_="sure"))
    parts.append(element("div", *_figures(of, finals, rounds), class_="grid"))
    parts += [*_repeating(task), *_details(task)]
    return element("section", *parts, id=of.anchor, class_="only" if only else None)


def date_text(unix_s: float) -> str:
    """A day and minute, in UTC."""
    moment = datetime.fromtimestamp(unix_s, UTC)
    return f"{moment.day} {moment:%b %Y, %H:%M} UTC"


def _where(task: Task) -> str:
    made = " and ".join(dict.fromkeys(record.backend for record in task.trials)) or task.records[-1].backend
    parts = [task.target.label, f"timed with {policy_text(task.policy)}", f"by {made}"]
    return " · ".join([*parts, date_text(task.records[-1].provenance.unix_s)])


def _key(of: Drawn, finals: list[Finalist]) -> Markup:
    return element("div", *(_stat(value, *remarks) for value, *remarks in _stats(of, finals)), class_="key")


def _stat(value: str, *remarks: str) -> Markup:
    return element("div", element("b", value), *(element("span", remark) for remark in remarks))


def _stats(of: Drawn, finals: list[Finalist]) -> Iterator[tuple[str, ...]]:
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


def _figures(of: Drawn, finals: list[Finalist], rounds: list[ModelRound]) -> Iterator[Markup]:
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


def _repeating(task: Task) -> Iterator[Markup]:
    lines = repeating_lines(task)
    yield element("h3", "To repeat it", style="margin-top:26px")
    if lines:
        yield element("pre", "\n".join(lines))
    else:
        yield element("p", "A kernel of the user's own: a call of it replays its best configuration.", class_="note")


def _details(task: Task) -> Iterator[Markup]:
    """The winner's schedule, and the machine."""
    record = task.best or task.records[-1]
    if certificate := record.measurement.certificate:
        yield _table("Certificate: results, device, versions", certificate_facts(record, certificate))
    knobs = [("sketch", record.schedule.sketch), *((k, knob_text(v)) for k, v in record.schedule.values)]
    yield _table("Schedule of the best kernel" if task.best else "The last schedule", knobs)
    measured, facts = record.measurement, record.measurement.facts
    known: list[tuple[str, str]] = [("log", str(task.log)), ("key", task.subject.key), *record.provenance.versions]
    known.append(("seed", str(record.provenance.seed)))
    if facts is not None:
        shown = {"registers": facts.registers, "bytes spilled": facts.spill_bytes, "source": facts.source}
        shown["bytes of shared memory"] = facts.shared_memory_bytes
        known += [(name, str(value)) for name, value in shown.items() if value is not None]
    if state := measured.device:
        clocks = f"{state.sm_clock_mhz} MHz, memory {state.memory_clock_mhz} MHz"
        throttled = ", ".join(state.throttle) or "not throttled"
        known.append(("device", f"{clocks}, {state.temperature_c} °C, {state.power_w:.0f} W, {throttled}"))
    yield _table("Machine, versions and compiled kernel", known)


def _table(title: str, rows: Iterable[tuple[str, str]]) -> Markup:
    body = (element("tr", element("td", name), element("td", value)) for name, value in rows)
    return element("details", element("summary", title), element("table", element("tbody", *body), class_="facts"))
