"""The origin of a table of our own log, in the member "autosched" that other tuners ignore."""

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
    """The origin of a table, if it comes from one of our logs.

    Raises:
        ValueError: it is of another version of autosched.
    """
    given = data.get(_MEMBER)
    if not isinstance(given, dict):
        return None
    if given.get("schema") != SCHEMA_VERSION:
        raise ValueError(f"{_MEMBER}: schema {given.get('schema')!r}; expected {SCHEMA_VERSION}")
    try:
        subject, target = subject_and_target(given)
        orders = (array(order, "order", (2,)) for order in array(given.get("orders", []), "orders"))
        return Origin(
            subject=subject,
            target=target,
            provenance=Provenance.from_json(given.get("provenance")),
            orders=tuple((text(sketch, "sketch"), _names(names)) for sketch, names in orders),
        )
    except DataError as error:
        raise ValueError(f"{_MEMBER}: expected workload, target and provenance ({error})") from None


def _names(given: object) -> tuple[str, ...]:
    return tuple(text(name, "knob") for name in array(given, "knobs"))
