"""`autosched ask-tell`: the search strategy served to another program, as lines of JSON on standard input and output.

{"op": "init", "names": […], "values": [[…], …], "configs": [[…], …], "seed": 0, "budget": 400, "ctx": {…}}
    begins a search and ends the former. Without "configs" every combination of values is legal. "ctx" may have
    "sources", measurements from elsewhere for a warm start: [{"device": …, "configs": [[…], …], "times": […]}, …], with
    "names" where the knobs are not those of "names" above. The answer is {"ok": true}, with "notes" on what was left
    out.
{"op": "ask", "n": 8}
    is answered with at most that many configurations, {"configs": [[…], …]}; with none when nothing is left.
{"op": "tell", "configs": [[…], …], "times": […]}
    reports times of configurations, in milliseconds, or null where they failed. The answer is {"ok": true}.

Any other line, or an impossible request, is answered with {"error": "…"}; it changes nothing. Imports neither PyTorch
nor the command line's other parts: it answers within a fraction of a second.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TextIO, TypeGuard

from autosched.strategies.bayesian import BayesianSearch, History, plain_search
from search_spaces import AutoschedError, InputError
from search_spaces.parsed_json import knob_value
from search_spaces.schedules.plain_space import PlainSpace, Point
from tuning_logs.exchange.fitting import fitted

_MS = 1e-3
# Three years: a longer time marks a failure, such as the 1e20 of some tuners.
_LONGEST_MS = 1e11
_OPERATIONS = "init, ask, tell"


def serve(lines: TextIO, answers: TextIO) -> None:
    """Answer every line until there are no more, or the reader closes the pipe."""
    served = _Served()
    try:
        for line in lines:
            if line.strip():
                answers.write(json.dumps(served.answer(line)) + "\n")
                answers.flush()
    except BrokenPipeError:
        return


class _Served:
    """The present search."""

    def __init__(self) -> None:
        self._space: PlainSpace | None = None
        self._search: BayesianSearch[Point] | None = None

    def answer(self, line: str) -> dict[str, Any]:
        try:
            return self._done(_message(line))
        except AutoschedError as error:
            return {"error": str(error)}

    def _done(self, message: dict[str, Any]) -> dict[str, Any]:
        match message.get("op"):
            case "init":
                return self._begin(message)
            case "ask":
                return {"configs": self._begun[1].ask(_count(message))}
            case "tell":
                space, strategy = self._begun
                points, seconds = _points(message), _seconds(message)
                _check_told(points, seconds, space)
                strategy.tell(points, seconds)
                return {"ok": True}
            case unknown:
                raise InputError(f"op {unknown!r}; expected one of {_OPERATIONS}")

    def _begin(self, message: dict[str, Any]) -> dict[str, Any]:
        space = _space(message)
        notes: list[str] = []
        history = []
        for number, source in enumerate(_sources(message), 1):
            try:
                found, remarks = _history(source, space)
            except InputError as error:
                notes.append(f"source {number} was left out: {error}")
                continue
            history.append(found)
            notes += [f"source {number}: {remark}" for remark in remarks]
        seed, budget = message.get("seed", 0), message.get("budget")
        if not _is_count(seed) or not (budget is None or _is_count(budget)):
            raise InputError(f"seed {seed!r} and budget {budget!r}; expected integers of at least 0")
        self._space, self._search = space, plain_search(space, seed, history)
        return {"ok": True, **({"notes": notes} if notes else {})}

    @property
    def _begun(self) -> tuple[PlainSpace, BayesianSearch[Point]]:
        if self._space is None or self._search is None:
            raise InputError('no search was begun; expected {"op": "init", "names": …, "values": …} first')
        return self._space, self._search


def _message(line: str) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"expected a line of JSON, got {line.strip()[:60]!r} ({error})") from None
    if not isinstance(message, dict):
        raise InputError(f'expected an object such as {{"op": "ask", "n": 8}}, got {line.strip()[:60]!r}')
    return message


def _space(message: dict[str, Any]) -> PlainSpace:
    names, values, configs = message.get("names"), message.get("values"), message.get("configs")
    if not (_is_rows(values) and isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise InputError("init: expected names, a list of texts, and values, a list of the values of each")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"init: names: {', '.join(twice)}: given twice; expected each knob once")
    if len(names) != len(values):
        raise InputError(f"init: {len(names)} names and {len(values)} lists of values; expected a list for each name")
    if not (configs is None or _is_rows(configs)):
        raise InputError("init: configs: expected a list of lists of values, one for each name")
    knobs = dict(zip(names, map(_row, values), strict=True))
    return PlainSpace(knobs, configurations=None if configs is None else map(_row, configs))


def _sources(message: dict[str, Any]) -> list[Any]:
    context = message.get("ctx") or {}
    sources = context.get("sources", []) if isinstance(context, dict) else None
    if not isinstance(sources, list):
        raise InputError(f"init: ctx {context!r:.60}; expected an object, with a list of sources or without")
    return sources


def _history(source: Any, space: PlainSpace) -> tuple[History, tuple[str, ...]]:
    """Measurements from elsewhere as points of the space, and remarks on those left out."""
    if not isinstance(source, dict):
        raise InputError(f"expected an object with configs and times, got {source!r:.60}")
    names = source.get("names", list(space.names))
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise InputError(f"names: expected a list of texts, got {names!r:.60}")
    points, seconds = _points(source), _seconds(source)
    _check_lengths(points, seconds, len(names))
    there = fitted(names, points, seconds, space)
    device = str(source.get("device") or "")
    unknown = () if device else ("it does not name its device",)
    return History(device, there.points, there.seconds), (*unknown, *there.remarks)


def _count(message: dict[str, Any]) -> int:
    count = message.get("n")
    if not _is_count(count):
        raise InputError(f"ask: n {count!r}; expected an integer of at least 0")
    return count


def _points(message: dict[str, Any]) -> list[Point]:
    configs = message.get("configs")
    if not _is_rows(configs):
        raise InputError("configs: expected a list of lists of values")
    return [_row(config) for config in configs]


def _row(values: list[object]) -> Point:
    try:
        return tuple([knob_value(value, "knob value") for value in values])
    except ValueError as error:
        raise InputError(str(error)) from None


def _seconds(message: dict[str, Any]) -> list[float | None]:
    times = message.get("times")
    if not isinstance(times, list):
        raise InputError("times: expected a list of milliseconds, with null for a failure")
    return [_one(time) for time in times]


def _one(time: Any) -> float | None:
    if time is None:
        return None
    if isinstance(time, bool) or not isinstance(time, int | float) or not 0 < time <= _LONGEST_MS:
        raise InputError(f"times: {time!r}; expected positive milliseconds, or null for a failure")
    return time * _MS


def _check_told(points: Sequence[Point], seconds: Sequence[float | None], space: PlainSpace) -> None:
    _check_lengths(points, seconds, len(space.names))
    foreign = next((point for point in points if not space.holds(point)), None)
    if foreign is not None:
        raise InputError(f"tell: {list(foreign)} is no legal configuration of {', '.join(space.names)}")


def _check_lengths(points: Sequence[Point], seconds: Sequence[float | None], knobs: int) -> None:
    if len(points) != len(seconds):
        raise InputError(f"{len(points)} configs and {len(seconds)} times; expected a time for each")
    wrong = next((point for point in points if len(point) != knobs), None)
    if wrong is not None:
        raise InputError(f"configuration {list(wrong)}: expected {knobs} values")


def _is_rows(value: object) -> TypeGuard[list[list[object]]]:
    return isinstance(value, list) and all(isinstance(row, list) for row in value)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
