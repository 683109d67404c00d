"""What a table of our own log is of, beside what other tuners look at: they pass over the member "autosched"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces import DataError
from search_spaces.parsed_json import array, text
from tuning_logs.exchange.recorded_table import Origin
from tuning_logs.record import SCHEMA_VERSION, Provenance, subject_and_target

_MEMBER = "autosched"


def origin_to_json(origin: Origin | None) -> dict[str, Any]:
    if origin is None:
        return {}
    return {
        _MEMBER: {
            "schema": SCHEMA_VERSION,
            "workload": origin.subject.to_json(),
            "target": origin.target.to_json(),
            "provenance": origin.provenance.to_json(),
            "orders": [[sketch, list(names)] for sketch, names in origin.orders],
        }
    }


def origin_from_json(data: Mapping[str, Any]) -> Origin | None:
    """What the table is of, where it was made of one of our logs.

    Raises:
        ValueError: of another version of autosched.
    """
    told = data.get(_MEMBER)
    if not isinstance(told, dict):
        return None
    if told.get("schema") != SCHEMA_VERSION:
        raise ValueError(f"{_MEMBER}: schema {told.get('schema')!r}; expected {SCHEMA_VERSION}")
    try:
        subject, target = subject_and_target(told)
        orders = (array(order, "order", (2,)) for order in array(told.get("orders", []), "orders"))
        return Origin(
            subject=subject,
            target=target,
            provenance=Provenance.from_json(told.get("provenance")),
            orders=tuple((text(sketch, "sketch"), _names(names)) for sketch, names in orders),
        )
    except DataError as error:
        raise ValueError(f"{_MEMBER}: expected workload, target and provenance ({error})") from None


def _names(told: object) -> tuple[str, ...]:
    return tuple(text(name, "knob") for name in array(told, "knobs"))
