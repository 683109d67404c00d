"""Expressions as JSON, the form of workloads in records."""

from __future__ import annotations

import math
import sys
from typing import Any

from search_spaces.errors import DataError
from search_spaces.parsed_json import LARGEST, array, members, number, text, whole
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import (
    Access,
    Apply,
    Expression,
    Gather,
    Integer,
    Literal,
    Position,
    Segment,
)

_INFINITIES = ("inf", "-inf")
_LARGEST = sys.float_info.max


def to_json(expression: Expression) -> Any:
    match expression:
        case Literal(value):
            return {"literal": _number_to_json(value)}
        case Integer(value):
            return {"integer": value}
        case Access(tensor, index, fill):
            outside = {} if fill is None else {"fill": _number_to_json(fill)}
            return {"access": tensor, "index": [i.to_json() for i in index], **outside}
        case Gather(tensor, index):
            return {"gather": tensor, "index": list(map(_place_to_json, index))}
        case Segment(tensor, position, size):
            return {"segment": tensor, "size": size, "of": _place_to_json(position)}
        case Position(index):
            return {"position": index.to_json()}
        case Apply(operator, arguments):
            return {"apply": operator, "arguments": [to_json(a) for a in arguments]}


def _place_to_json(place: Affine | Expression) -> Any:
    return place.to_json() if isinstance(place, Affine) else to_json(place)


def _place_from_json(data: Any) -> Affine | Expression:
    return from_json(data) if isinstance(data, dict) else Affine.from_json(data)


def _number_to_json(value: float | int) -> float | int | str:
    # JSON has no infinity.
    return value if math.isfinite(value) else str(value)


def from_json(data: Any) -> Expression:
    """Raises DataError, InputError."""
    match members(data, "expression"):
        case {"literal": value}:
            return Literal(float(_number_from_json(value)))
        case {"integer": value}:
            return Integer(whole(value, "integer", -LARGEST - 1))
        case {"access": tensor, "index": index, **rest}:
            fill = _number_from_json(rest["fill"]) if "fill" in rest else None
            return Access(text(tensor, "tensor"), tuple(map(Affine.from_json, array(index, "indices"))), fill)
        case {"gather": tensor, "index": index}:
            return Gather(text(tensor, "tensor"), tuple(map(_place_from_json, array(index, "indices"))))
        case {"segment": tensor, "size": size, "of": position}:
            return Segment(text(tensor, "tensor"), _place_from_json(position), whole(size, "size"))
        case {"position": index}:
            return Position(Affine.from_json(index))
        case {"apply": operator, "arguments": arguments}:
            return Apply(text(operator, "operator"), tuple(map(from_json, array(arguments, "arguments"))))
        case other:
            raise DataError(f"expression of {', '.join(other) or 'nothing'}; expected a literal, access or operator")


def _number_from_json(value: object) -> float | int:
    return float(str(value)) if value in _INFINITIES else number(value, "constant", -_LARGEST)
