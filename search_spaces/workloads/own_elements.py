"""Proofs that an element of an output depends on tensors in the output's memory only by that very element.

    out[h, p] = where(eq(h, 0), x[p], old[h, p])                          old lies where out does
    out[h, p] = where(eq(h, 1), where(eq(p, i[]), x[], second[p]), …)     second lies where out[1, …] does

Elements may then be stored while others are computed: what is read elsewhere is not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.constants import with_constants_computed
from search_spaces.workloads.expressions.walking import distinct
from search_spaces.workloads.stages import Stage, Tensor
from search_spaces.workloads.workload import Workload

# The values of axes that conditions give.
_Known = Mapping[str, int]
# Positions are compared as float32, which has all whole numbers below this one.
_EXACT = 2**24


def uses_only_own_elements(workload: Workload, output: str, begins: Mapping[str, int]) -> bool:
    """True for pointwise stages if every element of an output uses, of the inputs in its memory, only that element.

    `begins`: the inputs that lie there, and the element of the output's memory that each of them begins at.
    """
    stages = {stage.name: stage for stage in workload.stages}
    inputs = {t.name: t for t in workload.inputs if t.name in begins}
    (out,) = (t for t in workload.outputs if t.name == output)
    if not all(s.is_pointwise for s in workload.stages) or any(t.dtype != out.dtype for t in inputs.values()):
        return False
    # Of several outputs one may be stored before another's element is read.
    elsewhere = [s for s in workload.stages if s.name != output] if len(workload.outputs) > 1 else []
    if any(
        e.tensor in begins for s in elsewhere for e in distinct(s.expression) if isinstance(e, ex.Access | ex.Gather)
    ):
        return False
    own = _address(out, [axis_index(a.name) for a in stages[output].axes], 0)
    return _Proof(stages, inputs, begins, own).holds(with_constants_computed(stages[output].expression), {})


@dataclass(frozen=True)
class _Proof:
    """`own`: the address of an element of the output."""

    stages: Mapping[str, Stage]
    inputs: Mapping[str, Tensor]
    begins: Mapping[str, int]
    own: Affine

    def holds(self, expression: ex.Expression, known: _Known) -> bool:
        match expression:
            case ex.Access(tensor, index) if tensor in self.inputs:
                apart = _address(self.inputs[tensor], index, self.begins[tensor]) - self.own
                return _where(apart, known) == Affine()
            case ex.Access(tensor, index) if tensor in self.stages:
                stage = self.stages[tensor]
                own = all(i.axis == a.name for i, a in zip(index, stage.axes, strict=True))
                return own and self.holds(with_constants_computed(stage.expression), known)
            case ex.Gather():
                return expression.tensor not in self.inputs and all(self.holds(e, known) for e in expression.looked_up)
            case ex.Apply("where", (condition, chosen, other)):
                given = _given_by(condition)
                # Nothing is chosen where the axis has another value.
                never = any(known.get(axis, value) != value for axis, value in given.items())
                taken = never or self.holds(chosen, {**known, **given})
                return taken and self.holds(condition, known) and self.holds(other, known)
            case ex.Apply():
                return all(self.holds(e, known) for e in expression.arguments)
            case _:
                return True


def _address(tensor: Tensor, index: tuple[Affine, ...] | list[Affine], begin: int) -> Affine:
    terms = (i * stride for i, stride in zip(index, tensor.effective_strides, strict=True))
    return sum(terms, Affine(offset=begin))


def _where(form: Affine, known: _Known) -> Affine:
    """The form where axes have these values."""
    return form.substituted({a: Affine(offset=known[a]) if a in known else axis_index(a) for a in form.axes})


def _given_by(condition: ex.Expression) -> _Known:
    """Axes of which the condition is true for one value only."""
    match condition:
        case ex.Apply("mul", (a, b)):
            return {**_given_by(a), **_given_by(b)}
        case ex.Apply("eq", (a, ex.Integer(value) | ex.Literal(value))):
            return _axis_of(a, value)
        case ex.Apply("eq", (ex.Integer(value) | ex.Literal(value), a)):
            return _axis_of(a, value)
        case _:
            return {}


def _axis_of(position: ex.Expression, value: float) -> _Known:
    match position:
        case ex.Apply("to_integer", (inner,)):
            return _axis_of(inner, value)
        case ex.Position(index) if index.is_axis and abs(value) < _EXACT and value == int(value):
            return {index.axis: int(value)}
        case _:
            return {}
