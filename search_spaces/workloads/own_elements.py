"""Proofs that an element of an output depends on tensors in the output's memory only by that very element.

    out[h, p] = where(eq(h, 0), x[p], old[h, p])                          old lies where out does
    out[h, p] = where(eq(h, 1), where(eq(p, i[]), x[], second[p]), …)     second lies where out[1, …] does

Elements may then be stored while others are computed: what is read elsewhere is not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

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
    stages = {s.name: replace(s, expression=with_constants_computed(s.expression)) for s in workload.stages}
    inputs = {t.name: t for t in workload.inputs if t.name in begins}
    (out,) = (t for t in workload.outputs if t.name == output)
    if not all(s.is_pointwise for s in workload.stages) or any(t.dtype != out.dtype for t in inputs.values()):
        return False
    proof = _Proof(stages, inputs, begins, _address(out, [axis_index(a.name) for a in stages[output].axes], 0))
    # Of several outputs one may be stored before another's element is read.
    if any(proof.depends(stages[name].expression) for name in workload.output_names if name != output):
        return False
    expression = stages[output].expression
    # Along axes of other outputs an element may be computed again, from what was stored before.
    once = {a.name for s in workload.stages for a in s.axes} <= {a.name for a in stages[output].axes}
    return (once or proof.chooses(expression)) and proof.holds(expression, {})


@dataclass(frozen=True)
class _Proof:
    """`own`: the address of an element of the output."""

    stages: Mapping[str, Stage]
    inputs: Mapping[str, Tensor]
    begins: Mapping[str, int]
    own: Affine
    proved: dict[tuple[int, frozenset[tuple[str, int]]], bool] = field(default_factory=dict)

    def holds(self, expression: ex.Expression, known: _Known) -> bool:
        """True if of the inputs the expression uses at most the element at `own`, where axes have the known values."""
        # Expressions share parts, and live as long as the workload's stages here.
        key = id(expression), frozenset(known.items())
        if key not in self.proved:
            self.proved[key] = self._holds(expression, known)
        return self.proved[key]

    def _holds(self, expression: ex.Expression, known: _Known) -> bool:
        match expression:
            case ex.Access(tensor, index) if tensor in self.inputs:
                apart = _address(self.inputs[tensor], index, self.begins[tensor]) - self.own
                return _where(apart, known) == Affine()
            case ex.Access(tensor, index) if tensor in self.stages:
                stage = self.stages[tensor]
                own = all(i.axis == a.name for i, a in zip(index, stage.axes, strict=True))
                return not self.depends(expression) or (own and self.holds(stage.expression, known))
            case ex.Apply("where", (condition, chosen, other)):
                given = _given_by(condition)
                # Nothing is chosen where the axis has another value.
                never = any(known.get(axis, value) != value for axis, value in given.items())
                taken = never or self.holds(chosen, {**known, **given})
                return taken and self.holds(condition, known) and self.holds(other, known)
            case ex.Apply():
                return all(self.holds(e, known) for e in expression.arguments)
            case _:
                return not self.depends(expression)

    def depends(self, expression: ex.Expression) -> bool:
        """True if the expression uses any element of the inputs."""
        read = {e.tensor for e in distinct(expression) if isinstance(e, ex.Access | ex.LookUp)}
        return any(
            name in self.inputs or (name in self.stages and self.depends(self.stages[name].expression)) for name in read
        )

    def chooses(self, expression: ex.Expression) -> bool:
        """True if elements of the inputs are only chosen: an element that is computed again is then the same."""
        match expression:
            case ex.Access(tensor) if tensor in self.inputs:
                return True
            case ex.Apply("where", (condition, chosen, other)):
                return not self.depends(condition) and self.chooses(chosen) and self.chooses(other)
            case _:
                return not self.depends(expression)


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
