"""The order of arguments that may be exchanged: by their structure, which is independent of all names."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

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
from search_spaces.workloads.expressions.walking import walk
from search_spaces.workloads.scans import LEFT, RIGHT, Scan, operand
from search_spaces.workloads.stages import Stage, Tensor

# Operators whose result is the same to the last bit with their arguments in the other order.
_COMMUTATIVE = frozenset({"add", "mul", "eq", "bitwise_and", "bitwise_or", "bitwise_xor"})


@dataclass(frozen=True)
class ArgumentOrder:
    """Orders the arguments of sums and products in the stages of a workload.

    Each expression has a signature, a text that two expressions share only if they differ in names, or by chance in
    little else. `address`: the address that an access reads. `operands`: the signatures of the operands that a scan
    combines.
    """

    inputs: Mapping[str, Tensor]
    stages: Mapping[str, Stage]
    address: Callable[[Access], Affine]
    operands: Mapping[Expression, str] = field(default_factory=dict)
    _looks: dict[str, str] = field(default_factory=dict)

    def ordered(self, expression: Expression, colours: Mapping[str, str]) -> Expression:
        """The expression with its arguments in order. `colours` distinguish axes by their meaning."""
        return self._in_order(expression, colours, {})[1]

    def combined(self, scan: Scan) -> tuple[Expression, ...]:
        """The combinations of a scan with their arguments in order."""
        looks: dict[Expression, str] = {
            operand(side, number): f":{digest(side, self._look(member))}"
            for number, member in enumerate(scan.members)
            for side in (LEFT, RIGHT)
        }
        return tuple(replace(self, operands=looks).ordered(c, {}) for c in scan.combine)

    def _in_order(
        self, e: Expression, colours: Mapping[str, str], known: dict[int, tuple[str, Expression]]
    ) -> tuple[str, Expression]:
        """The signature of an expression, and the same with the arguments of sums and products sorted by theirs.

        `known`: those of parts, by identity: a shared part is visited once, and stays shared.
        """
        found = known.get(id(e))
        if found is None:
            found = known[id(e)] = self._looked_at(e, colours, known)
        return found

    def _looked_at(
        self, e: Expression, colours: Mapping[str, str], known: dict[int, tuple[str, Expression]]
    ) -> tuple[str, Expression]:
        match e:
            case Access() if e in self.operands:
                return self.operands[e], e
            case Access(tensor, _, fill):
                outside = [] if fill is None else [f":{constant_text(fill)}"]
                return _joined("access", self._look(tensor), _seen(self.address(e), colours), *outside), e
            case Gather(tensor, mixed):
                at = [self._placed(i, colours, known) for i in mixed]
                look = _joined("gather", self._look(tensor), *sorted(look for look, _ in at))
                return look, Gather(tensor, tuple(i for _, i in at))
            case Segment(tensor, position, size):
                look, position = self._placed(position, colours, known)
                return _joined("segment", self._look(tensor), look), Segment(tensor, position, size)
            case Apply(operator, arguments):
                given = [self._in_order(a, colours, known) for a in arguments]
                if operator in _COMMUTATIVE:
                    given.sort(key=lambda pair: pair[0])
                return _joined(operator, *(look for look, _ in given)), Apply(operator, tuple(a for _, a in given))
            case Position(form):
                return _joined("position", _seen(form, colours)), e
            case Literal(value):
                return _joined("literal", f":{constant_text(value)}"), e
            case Integer(value):
                return _joined("integer", f":{value}"), e

    def _placed(
        self, at: Affine | Expression, colours: Mapping[str, str], known: dict[int, tuple[str, Expression]]
    ) -> tuple[str, Affine | Expression]:
        """The same of a place: an affine form or data."""
        return (_seen(at, colours), at) if isinstance(at, Affine) else self._in_order(at, colours, known)

    def _look(self, tensor: str) -> str:
        """The signature of a tensor, independent of its name and of the splitting of its axes."""
        if tensor in self.inputs:
            return f":{self.inputs[tensor].dtype} {self.inputs[tensor].span}"
        if tensor not in self._looks:
            stage = self.stages[tensor]
            fold: str = stage.reduction.operator if stage.reduction else ""
            parts = sorted(map(self._part, walk(stage.expression)))
            if stage.combination:
                fold = digest("scan", *sorted(e.operator for e in walk(stage.combination) if isinstance(e, Apply)))
            self._looks[tensor] = f":{digest(stage.dtype, fold, f'{math.prod(stage.shape)} {stage.points}', *parts)}"
        return self._looks[tensor]

    def _part(self, e: Expression) -> str:
        match e:
            case Access(tensor) | Gather(tensor) | Segment(tensor):
                return self._look(tensor)
            case Apply(operator):
                return operator
            case Literal(value):
                return constant_text(value)
            case Integer(value):
                return str(value)
            case Position():
                return ""


def constant_text(value: float) -> str:
    """A constant in float32, the type in which expressions compute."""
    with np.errstate(over="ignore"):
        held = float(np.float32(value))
    return repr(held if math.isfinite(held) else float(value))


def _seen(form: Affine, colours: Mapping[str, str]) -> str:
    """The signature of a form: its axes by their colours, and the rest."""
    terms = sorted((colours[v], c) for v, c in form.terms if v in colours)
    return f"{' '.join(colour for colour, _ in terms)}:{form.offset} {terms}"


def _joined(name: str, *looks: str) -> str:
    """The signature of a compound: all axes first, so that small differences do not decide the order of two."""
    axes = {axis for look in looks for axis in look.partition(":")[0].split()}
    return f"{' '.join(sorted(axes))}:{digest(name, *looks)}"


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
