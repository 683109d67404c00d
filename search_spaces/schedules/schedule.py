"""A schedule: one point of a search space, as a sketch name and a value per knob."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from search_spaces.errors import InputError
from search_spaces.parsed_json import LARGEST, knob_value, members, text
from search_spaces.plain_text import visible
from search_spaces.programs.text import to_text
from search_spaces.programs.tile_program import TileProgram
from search_spaces.schedules.knobs import KnobValue, Values
from search_spaces.schedules.translation import in_todays_words

# As many as the keys of workloads have.
_KEY_DIGITS = 16


@dataclass(frozen=True)
class Schedule:
    """One point of a search space; equal when sketch, knob values and backend are equal.

    A schedule that comes from a search space can lower itself (`lowering`), and prints as its loop nest; one that was
    read from a log cannot until `SearchSpace.bind` returns it bound. `backend` names the backend that makes a kernel of
    it; "" if the search space was built for none in particular.
    """

    sketch: str
    values: tuple[tuple[str, KnobValue], ...]
    lowering: Callable[[Schedule], TileProgram] | None = field(default=None, compare=False, repr=False)
    backend: str = ""

    @cached_property
    def knobs(self) -> Values:
        return Values(self.values)

    @cached_property
    def program(self) -> TileProgram:
        """The tile program it lowers to, kept from the first use on, 10 kB; InputError when it is not bound."""
        if self.lowering is None:
            raise InputError(f"{self.one_line}: not bound to a search space; use SearchSpace.bind first")
        return self.lowering(self)

    @property
    def key(self) -> str:
        """16 hexadecimal digits: equal for equal schedules, whatever they are bound to."""
        choice = json.dumps([self.backend, self.to_json()])
        return hashlib.sha256(choice.encode()).hexdigest()[:_KEY_DIGITS]

    @property
    def unbound(self) -> Schedule:
        """The choice alone, without its program (10 kB): worth keeping for many schedules."""
        return Schedule(self.sketch, self.values, backend=self.backend)

    @property
    def one_line(self) -> str:
        """`sketch knob=value …`, for tables."""
        return visible(" ".join([self.sketch, *(f"{k}={_value_text(v)}" for k, v in self.values)]))

    def __str__(self) -> str:
        return f"# {self.one_line}" + (f"\n{to_text(self.program)}" if self.lowering else "")

    def __getstate__(self) -> dict[str, Any]:
        # Only the choice itself travels between processes.
        return {"sketch": self.sketch, "values": self.values, "lowering": None, "backend": self.backend}

    def to_json(self) -> dict[str, Any]:
        """Sketch and knob values; a record names the backend separately."""
        values = {k: list(v) if isinstance(v, tuple) else v for k, v in self.values}
        return {"sketch": self.sketch, "values": values}

    @staticmethod
    def from_json(data: Any, backend: str = "") -> Schedule:
        """An unbound schedule of that backend. Raises DataError."""
        told = members(data, "schedule", ("sketch", "values"))
        sketch, values = in_todays_words(text(told["sketch"], "sketch"), members(told["values"], "knobs"))
        text(" ".join(values), "knobs")
        # Most values are flags and small integers, and they take most of the time of reading a record.
        named: list[tuple[str, Any]] = [
            (k, v if type(v) is bool or (type(v) is int and 0 <= v <= LARGEST) else knob_value(v, k))
            for k, v in values.items()
        ]
        return Schedule(sketch, tuple(named), backend=backend)


def _value_text(value: KnobValue) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
