"""Affine forms of variables: the indices of tensors and tiles."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from search_spaces.parsed_json import LARGEST, array, text, whole


@dataclass(frozen=True, slots=True)
class Affine:
    """`offset + sum(coefficient * variable)`. Terms are sorted by variable, none has coefficient 0."""

    terms: tuple[tuple[str, int], ...] = ()
    offset: int = 0

    @staticmethod
    def of(*terms: tuple[str, int], offset: int = 0) -> Affine:
        """An affine form from (variable, coefficient) pairs, which may repeat a variable."""
        total: dict[str, int] = {}
        for variable, coefficient in terms:
            total[variable] = total.get(variable, 0) + coefficient
        return Affine(tuple(sorted((v, c) for v, c in total.items() if c)), offset)

    def __add__(self, other: Affine) -> Affine:
        if not (self.terms and other.terms):
            return Affine(self.terms or other.terms, self.offset + other.offset)
        return Affine.of(*self.terms, *other.terms, offset=self.offset + other.offset)

    def __neg__(self) -> Affine:
        return Affine(tuple((v, -c) for v, c in self.terms), -self.offset)

    def __sub__(self, other: Affine) -> Affine:
        return self + -other

    def __mul__(self, factor: int) -> Affine:
        return Affine(tuple((v, c * factor) for v, c in self.terms) if factor else (), self.offset * factor)

    @property
    def is_axis(self) -> bool:
        """True if it is just a variable."""
        return self.offset == 0 and len(self.terms) == 1 and self.terms[0][1] == 1

    @property
    def axes(self) -> tuple[str, ...]:
        """The variables that it depends on."""
        return tuple(variable for variable, _ in self.terms)

    @property
    def axis(self) -> str:
        """The variable that it is; "" of any other form."""
        return self.axes[0] if self.is_axis else ""

    def step(self, variable: str) -> int:
        """The coefficient of a variable, 0 of one that it does not depend on."""
        return dict(self.terms).get(variable, 0)

    def along(self, tiled: Collection[str]) -> str:
        """The variable, of those that tiles lie along, that it depends on; "" where there is none, or several."""
        moving = [v for v in self.axes if v in tiled]
        return moving[0] if len(moving) == 1 else ""

    def substituted(self, forms: Mapping[str, Affine]) -> Affine:
        """The form with every variable replaced by a form."""
        if len(self.terms) == 1:
            ((variable, c),) = self.terms
            made = forms[variable] if c == 1 else forms[variable] * c
            return Affine(made.terms, made.offset + self.offset) if self.offset else made
        terms = [(v, c * by) for variable, c in self.terms for v, by in forms[variable].terms]
        return Affine.of(*terms, offset=self.offset + sum(c * forms[variable].offset for variable, c in self.terms))

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The value with every variable replaced by a number."""
        return self.offset + sum(c * values[v] for v, c in self.terms)

    def maximum(self, extents: Mapping[str, int]) -> int:
        """The largest value when each variable runs from 0 below its extent."""
        found = self.offset
        for v, c in self.terms:
            if c > 0:
                found += c * (extents[v] - 1)
        return found

    def minimum(self, extents: Mapping[str, int]) -> int:
        """The smallest value when each variable runs from 0 below its extent."""
        found = self.offset
        for v, c in self.terms:
            if c < 0:
                found += c * (extents[v] - 1)
        return found

    def __str__(self) -> str:
        parts = [v if c == 1 else f"{v}*{c}" for v, c in self.terms]
        if self.offset or not parts:
            parts.append(str(self.offset))
        return " + ".join(parts)

    def to_json(self) -> Any:
        return [[list(t) for t in self.terms], self.offset]

    @staticmethod
    def from_json(data: Any) -> Affine:
        """Raises DataError."""
        terms, offset = array(data, "index", (2,))
        read = (array(term, "term", (2,)) for term in array(terms, "terms"))
        of = [(text(v, "axis"), whole(c, "coefficient", -LARGEST)) for v, c in read]
        return Affine.of(*of, offset=whole(offset, "offset", -LARGEST))


def axis_index(name: str) -> Affine:
    """The index that is just the axis `name`."""
    return Affine(((name, 1),))
