"""Records with one part replaced: by every kind of JSON value, or a text by one that would run or move a cursor."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

from autosched import backends
from autosched.backends import spaces
from autosched.backends.fingerprint import source_fingerprint
from autosched.backends.generator import generator_hash
from certified_records import certificate, pairs
from search_spaces import Target, Workload
from tuning_logs import CompileFacts, DeviceState, Measurement, Provenance, TuningRecord

# The names of members and the places in lists that lead to a part.
Place = tuple[str | int, ...]

# One of every kind of JSON, and numbers that do not fit everywhere.
VALUES: tuple[object, ...] = (None, True, -1, 2**62, 1e308, "x", [], {}, [[0]])


def whole_record(workload: Workload, target: Target, number: int = 0) -> TuningRecord:
    """A record that tells all that records can tell, of the first schedule of the space, or a later one."""
    schedule = next(itertools.islice(spaces.build(workload, target), number, None))
    source = backends.named(schedule.backend).render(schedule.program, schedule.one_line, target)
    facts = CompileFacts(0.5, 32, 0, 1024, source_fingerprint(source, schedule.program))
    device = DeviceState(1500, 2000, 50, 300.0, ("sw_power_cap",))
    measurement = Measurement(
        "ok", (1e-5, 1.1e-5, 1.2e-5), "a detail", facts, 0.1, 1.0, 1.1, "short", device, 0.1, 0.2, (1e-5,), (2e-5,)
    )
    library = pairs("library", 1.5, 1.4, 1.6)
    measurement = dataclasses.replace(measurement, certificate=certificate(library=library, source=facts.source))
    provenance = Provenance(generator_hash(), "cold", 1e9, 1, 2, (("torch", "2.9"), ("driver", "580.1")), 3, 0.01)
    return TuningRecord(workload, target, schedule.unbound, measurement, provenance)


def parts(data: object, path: Place = ()) -> Iterator[tuple[Place, object]]:
    """Everything that data is made of, itself excepted, and where it is."""
    members = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for name, part in members:
        yield (*path, name), part
        yield from parts(part, (*path, name))


def replaced(data: Any, path: Place, value: object) -> Any:
    """A copy with another value at a place."""
    made = json.loads(json.dumps(data))
    within = made
    for name in path[:-1]:
        within = within[name]
    within[path[-1]] = value
    return made


def renamed(data: Any, path: Place, name: str) -> Any:
    """A copy in which the member at a place has another name, in the same place."""
    made = json.loads(json.dumps(data))
    within = made
    for step in path[:-1]:
        within = within[step]
    items = [(name if key == path[-1] else key, value) for key, value in within.items()]
    within.clear()
    within.update(items)
    return made


def without(data: Any, path: Place) -> Any:
    """A copy without what is at a place."""
    made = json.loads(json.dumps(data))
    within = made
    for name in path[:-1]:
        within = within[name]
    del within[path[-1]]
    return made


def damaged(data: Any, values: Sequence[object] = VALUES) -> Iterator[Any]:
    """The data with each of its parts replaced by each of the values in turn, and left out."""
    for path, part in parts(data):
        yield without(data, path)
        for value in values:
            if type(value) is not type(part) or value != part:
                yield replaced(data, path, value)
