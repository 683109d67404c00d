"""`report`: a tuning log as one HTML file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from autosched.reporting.analysis.model_rounds import ModelRound, model_rounds
from autosched.reporting.analysis.summary import Summary, summary
from autosched.reporting.analysis.tasks import Task, tasks_at
from autosched.reporting.html.markup import Markup, element, joined
from autosched.reporting.html.overview import overview, speedups_text
from autosched.reporting.html.section import date_text, section
from autosched.reporting.html.sorting import SCRIPT, policy
from autosched.reporting.html.style import STYLE
from search_spaces import LogError
from tuning_logs.packing import replace_file
from tuning_logs.text import records_text

# Sections, those of the most trials, each of some 20 kB: the other tasks are in the overview alone.
_MOST_SECTIONS = 100
# Trials that the cost model looks at, of one task and of all: lowering one to its features takes 1 to 3 ms.
_MOST_MODELLED, _MOST_MODELLED_IN_ALL = 512, 1000


def report(
    log: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    select: Sequence[str] = (),
) -> Path:
    """Write what a tuning log tells into an HTML file, which needs no network and no other file; returns its path.

    `log` and `select` are as of `winners`, and a log must be named. The same log gives the same file, but that a later
    version finds some of its records stale.

    Raises:
        InputError: there is no log, it is empty, or nothing in it is selected.
        LogError: it is no tuning log, or the file cannot be written.
    """
    page = page_of(tasks_at(Path(log).expanduser(), select), Path(log))
    try:
        replace_file(Path(path), page.encode())
    except OSError as error:
        raise LogError(f"cannot write {path}: {error.strerror or error}") from error
    return Path(path)


def page_of(tasks: Sequence[Task], log: Path) -> str:
    """The page of these tasks of a log."""
    if len(tasks) == 1:
        title, body = tasks[0].subject.label, _sections([summary(tasks[0], "kernel", printed=True)], only=True)
    else:
        title, body = f"Tuning of {len(tasks)} kernels", _many(tasks)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy()),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Markup(STYLE)),
    )
    main = element("body", *body, _foot(tasks, log), element("script", Markup(SCRIPT)))
    return "<!doctype html>\n" + element("html", head, main, lang="en") + "\n"


def _many(tasks: Sequence[Task]) -> list[Markup]:
    by_trials = sorted(tasks, key=lambda task: -len(task.trials))
    found = [summary(task, f"kernel-{n}", printed=n <= _MOST_SECTIONS) for n, task in enumerate(by_trials, 1)]
    devices = list(dict.fromkeys(task.target.label for task in tasks))
    trials = sum(len(task.trials) for task in tasks)
    told = f"{trials} trials on {' and '.join(devices)}; {speedups_text(found)}."
    left = len(found) - _MOST_SECTIONS
    more = [f"{left} kernels have no section here: select them by name."] if left > 0 else []
    if stale := sum(bool(one.stale) for one in found):
        more.append(f"{stale} are stale: this version makes other kernels of their schedules, or none.")
    return [
        element("h1", f"Tuning of {len(tasks)} kernels"),
        element("p", " ".join([told, *more]), class_="sub"),
        element("div", overview(found, _MOST_SECTIONS), style="margin-top:22px"),
        *_sections(found[:_MOST_SECTIONS], only=False),
    ]


def _sections(found: Sequence[Summary], only: bool) -> list[Markup]:
    tasks = [one.task for one in found]
    return [section(one, rounds, only) for one, rounds in zip(found, _rounds(tasks), strict=True)]


def _rounds(tasks: Sequence[Task]) -> Iterator[list[ModelRound]]:
    """The rounds of each, as long as there are trials to spend."""
    left = _MOST_MODELLED_IN_ALL
    for task in tasks:
        trials = min(len(task.trials), _MOST_MODELLED)
        yield model_rounds(task, trials) if trials <= left else []
        left -= min(trials, left)


def _foot(tasks: Sequence[Task], log: Path) -> Markup:
    records = records_text(sum(len(task.records) for task in tasks))
    last = max(task.records[-1].provenance.unix_s for task in tasks)
    told = f"{records} of {log}, the last one of {date_text(last)}, by autosched."
    return element("footer", joined([told]))
