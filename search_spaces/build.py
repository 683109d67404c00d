"""Builds the search space of a workload on a target."""

from __future__ import annotations

import functools
import operator
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from search_spaces import anchors
from search_spaces.devices.target import Target
from search_spaces.errors import EmptySearchSpaceError, UnmatchedError
from search_spaces.schedules.limits import NO_BACKEND, Limits, Offers
from search_spaces.schedules.sketch import Sketch
from search_spaces.schedules.space import SearchSpace
from search_spaces.structure.integer_products import without_integer_dots
from search_spaces.workloads.workload import Workload

# Spaces that are kept: a prediction learns from 48 workloads and devices at most. Each takes 80 kB when it is made, and
# of a product that was searched 9 MB, most of it answers of rules.
_MOST_KEPT = 64


def build(workload: Workload, target: Target, backends: Mapping[str, Limits] = NO_BACKEND) -> SearchSpace:
    """The space of every anchor that the structure of the workload has: made once, whoever asks again.

    Schedules are of the workload's canonical form (`Workload.scheduled`): equal keys have equal spaces.

    `backends` are those that may make its kernels, best first: those that cannot compute the workload are left out.
    Without any, schedules are of no backend, and all that sketches allow is legal.

    Raises:
        EmptySearchSpaceError: no backend can compute it, or it has no anchor; the message says why, or lists those
            that were tried.
    """
    found = _made(workload, target, tuple(backends.items()))
    if isinstance(found, str):
        raise EmptySearchSpaceError(found)
    return found


@functools.lru_cache(_MOST_KEPT)
def _made(workload: Workload, target: Target, makers: tuple[tuple[str, Limits], ...]) -> SearchSpace | str:
    """The space, or why there is none."""
    backends = dict(makers)
    scheduled = workload.scheduled
    refusals = {name: limits.why_unsupported(scheduled, target) for name, limits in backends.items()}
    able = {name: limits for name, limits in backends.items() if refusals[name] is None}
    if not able:
        none = f"no backend that is installed makes kernels for {target.key}"
        return f"{workload.label} on {target.name}: {_refused(refusals) or none}"
    offers = {name: limits.offers(target) for name, limits in able.items()}
    every = functools.reduce(operator.or_, offers.values())
    tried: dict[str, str] = {}
    if target.kind == "cpu":
        scheduled = without_integer_dots(scheduled)
    found = _derived(scheduled, target, every, tried)
    if not found:
        why = _reasons(tried)
        return f"no anchor matches {workload.label} on {target.name} (tried: {why}{_sizes(why, scheduled)})\n{workload}"
    own = {each: _derived(scheduled, target, each, {}) for each in {*offers.values()} - {every}}
    lesser = {name: _numbered(own[each]) for name, each in offers.items() if each in own}
    joint = (s.beside({name: own.get(key) for name, own in lesser.items()}) for key, s in _numbered(found).items())
    return SearchSpace(workload, target, tuple(joint), able)


def sketch_names() -> frozenset[str]:
    """The names of all sketches of this version; each is named after its anchor."""
    return frozenset(name for name, _ in anchors.anchors())


def _derived(workload: Workload, target: Target, offers: Offers, tried: dict[str, str]) -> tuple[Sketch, ...]:
    """Every sketch of a workload for the offers; `tried` gets every anchor, with the reason that it does not match."""
    found: list[Sketch] = []
    for name, anchor in anchors.anchors():
        try:
            found += [replace(s, words=offers.words) for s in anchor.derive(workload, target, offers)]
            tried[name] = ""
        except UnmatchedError as why:
            tried[name] = str(why)
    return tuple(found)


def _numbered(sketches: Iterable[Sketch]) -> dict[tuple[str, int], Sketch]:
    """Sketches by their name and a number among those of the same anchor."""
    counts = Counter[str]()
    found = dict[tuple[str, int], Sketch]()
    for sketch in sketches:
        found[sketch.name, counts[sketch.name]] = sketch
        counts[sketch.name] += 1
    return found


def _refused(refusals: Mapping[str, str | None]) -> str:
    """Reasons that no backend computes it: each by its name, unless all are equal."""
    reasons = {reason for reason in refusals.values() if reason}
    if len(reasons) > 1:
        return "; ".join(f"{name}: {reason}" for name, reason in refusals.items())
    return "".join(reasons)


def _reasons(tried: Mapping[str, str]) -> str:
    """The anchors that were tried, grouped by the reason that they do not match."""
    named: dict[str, list[str]] = {}
    for name, why in tried.items():
        named.setdefault(why, []).append(name)
    return "; ".join(", ".join(names) + (f" ({why})" if why else "") for why, names in named.items())


def _sizes(why: str, scheduled: Workload) -> str:
    """The axes that reasons name, which are those of the canonical form, by their sizes."""
    sizes = {a.name: a.extent for s in scheduled.stages for a in s.loops}
    named = sorted(name for name in sizes if re.search(rf"\b{name}\b", why))
    return f"; sizes: {', '.join(f'{name} {sizes[name]}' for name in named)}" if named else ""


def why_no_schedule(workload: Workload, target: Target, backends: Mapping[str, Limits] = NO_BACKEND) -> str | None:
    """Reason that the workload has no kernel on the target, or None.

    Either no sketch computes it, or none of their schedules is legal.
    """
    try:
        build(workload, target, backends).sample(np.random.default_rng(0))
    except EmptySearchSpaceError as error:
        return str(error).partition("\n")[0]
    return None
