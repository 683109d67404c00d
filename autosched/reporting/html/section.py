"""The section of one task: headline, certainty, charts, and the lines that repeat its result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from autosched.machine.policies import policy_text
from autosched.reporting.analysis.certainty import certainty
from autosched.reporting.analysis.finals import finalists
from autosched.reporting.analysis.model_rounds import ModelRound
from autosched.reporting.analysis.repeating import repeating_lines
from autosched.reporting.analysis.summary import Summary
from autosched.reporting.analysis.tasks import Task
from autosched.reporting.certificates import certificate_facts
from autosched.reporting.html.figures import figures
from autosched.reporting.html.headline import headline
from autosched.reporting.html.knob_text import knob_text
from autosched.reporting.html.markup import Markup, element


def section(of: Summary, rounds: list[ModelRound], only: bool) -> Markup:
    """The section; `only` is its own page, under the heading of the report."""
    task, finals = of.task, finalists(of.task)
    head = element("h1" if only else "h2", task.subject.label)
    parts = [head, element("p", _where(task), class_="sub"), headline(of)]
    stale = [f"Stale: {of.stale}. What is told here is of the kernel that was measured."] if of.stale else []
    parts.append(element("p", " ".join([*certainty(task, finals), *stale]), class_="sure"))
    parts.append(element("div", *figures(of, finals, rounds), class_="grid"))
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
