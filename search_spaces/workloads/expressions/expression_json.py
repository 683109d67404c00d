"""Expressions as JSON, in which workloads of records are written."""

from __future__ import annotations

import math
from typing import Any

from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Gather, Integer, Literal, Position


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
            return {"gather": tensor, "index": [i.to_json() if isinstance(i, Affine) else to_json(i) for i in index]}
        case Position(index):
            return {"position": index.to_json()}
        case Apply(operator, arguments):
            return {"apply": operator, "arguments": [to_json(a) for a in arguments]}


def _number_to_json(value: float | int) -> float | int | str:
    # JSON has no infinity.
    return value if math.isfinite(value) else str(value)


def from_json(data: Any) -> Expression:
    if "literal" in data:
        return Literal(float(data["literal"]))
    if "integer" in data:
        return Integer(int(data["integer"]))
    if "access" in data:
        fill = data.get("fill")
        index = tuple(Affine.from_json(i) for i in data["index"])
        return Access(data["access"], index, float(fill) if isinstance(fill, str) else fill)
    if "gather" in data:
        mixed = (from_json(i) if isinstance(i, dict) else Affine.from_json(i) for i in data["index"])
        return Gather(data["gather"], tuple(mixed))
    if "position" in data:
        return Position(Affine.from_json(data["position"]))
    return Apply(data["apply"], tuple(from_json(a) for a in data["arguments"]))
