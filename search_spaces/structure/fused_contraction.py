"""Contractions that one dot of two tensors is not: several over the same axes, and operands that are computed first.

    gate[m, n] = sum over k of x[m, k] * wg[k, n]           h[m, n]   = sum over k of (relu(x[m, k]) * s[k]) * w[k, n]
    up[m, n]   = sum over k of x[m, k] * wu[k, n]           out[m, n] = h[m, n] + bias[n]
    out[m, n]  = silu(gate[m, n]) * up[m, n]

What is computed before a dot is its prologue. Dots multiply 16-bit floats, and float32 cut to tf32: an operand is of
the narrowest element type that holds all its values, which an operand rounds to that is computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from search_spaces.structure.forms import contraction_form, inline, is_plain, with_axes_named
from search_spaces.workloads import expression as ex
from search_spaces.workloads.dtypes import round_to
from search_spaces.workloads.expression import ROUNDINGS, Access, Apply, Expression, Gather, Literal
from search_spaces.workloads.workload import Axis, Stage, Workload

# Positions along k are compared in float32, which holds integers up to here.
_MAX_K = 2**24
# What dots with prologues multiply.
_MULTIPLIED = ("float32", "float16", "bfloat16")
# Operators whose values are among those of their operands, up to the sign.
_CHOOSING = frozenset({"maximum", "minimum", "neg", "abs"})


@dataclass(frozen=True)
class FusedDot:
    """stage[batch…, m, n] = sum over k of a · b, with `a` over batch, m and k, and `b` over batch, k and n."""

    stage: str
    a: Expression
    b: Expression


@dataclass(frozen=True)
class FusedContractionForm:
    """out[batch…, m, n] = epilogue(dots): sums of products over one axis k, then only pointwise stages.

    `dtype` is the element type of all operands; `result` is the epilogue with everything inlined but the dots.
    """

    batch: tuple[Axis, ...]
    m: Axis
    n: Axis
    k: Axis
    dots: tuple[FusedDot, ...]
    dtype: str
    result: Expression

    @property
    def operands(self) -> tuple[tuple[Expression, ...], tuple[Expression, ...]]:
        """What the dots multiply, each once: rows of the dots, columns of the dots."""
        return tuple(dict.fromkeys(d.a for d in self.dots)), tuple(dict.fromkeys(d.b for d in self.dots))


def fused_contraction_form(workload: Workload) -> FusedContractionForm | None:
    """The workload as dots with prologues and one epilogue; None where it is something else, or one plain contraction.

    Its axes are called b (b0, b1 … when there are several), m, n and k in the form, whatever they are in the workload.
    """
    found = _found(workload)
    if found is None or contraction_form(workload):
        return None
    names = {x.name: "b" if len(found.batch) == 1 else f"b{i}" for i, x in enumerate(found.batch)}
    names |= {found.m.name: "m", found.n.name: "n", found.k.name: "k"}
    return _found(with_axes_named(workload, names))


def multiplied(workload: Workload) -> dict[str, str]:
    """The stages that dot units can compute, and the element type of what each multiplies.

    They are sums of products of two tensors, and, in a fused contraction, of what is computed from tensors.
    """
    dtypes = {t.name: t.dtype for t in workload.inputs} | {s.name: s.dtype for s in workload.stages}
    plain = {s.name: dtypes[ex.accesses(s.expression)[0].tensor] for s in workload.stages if s.is_contraction}
    form = fused_contraction_form(workload)
    return plain | ({d.stage: form.dtype for d in form.dots} if form else {})


def is_computed(operand: Expression) -> bool:
    """Whether an operand is more than a tensor read where it lies."""
    return not isinstance(operand, Access)


def element_type(expression: Expression, dtypes: dict[str, str]) -> str | None:
    """The narrowest of float32, float16 and bfloat16 that holds every value of the expression.

    None for integers, booleans and 8-bit floats, which dots with prologues do not multiply. `dtypes` are those of the
    inputs.
    """
    match expression:
        case Access(tensor) | Gather(tensor):
            return dtypes[tensor] if dtypes[tensor] in _MULTIPLIED else None
        case Apply(operator) if operator in ROUNDINGS:
            return ROUNDINGS[operator] if ROUNDINGS[operator] in _MULTIPLIED else None
        case Apply(operator, arguments) if operator in (*_CHOOSING, "where"):
            chosen = arguments[1:] if operator == "where" else arguments
            types = {element_type(a, dtypes) for a in chosen if not isinstance(a, Literal)}
            narrow = types.pop() if len(types) == 1 else None
            literals = [a.value for a in chosen if isinstance(a, Literal)]
            return narrow if narrow and all(_holds(narrow, v) for v in literals) else "float32"
        case _:
            return "float32"


def _holds(dtype: str, value: float) -> bool:
    with np.errstate(over="ignore"):
        return float(round_to(np.array([value], np.float32), dtype)[0]) == value


def _found(workload: Workload) -> FusedContractionForm | None:
    sums = [s for s in workload.stages if s.reduction]
    rest = {s.name: s for s in workload.stages if not s.reduction}
    if not sums or not is_plain(workload) or workload.output_names != (workload.stages[-1].name,):
        return None
    axes, reduction = sums[0].axes, sums[0].reduction
    assert reduction is not None
    same = all(s.axes == axes and s.reduction == reduction for s in sums) and all(s.axes == axes for s in rest.values())
    if not same or reduction.operator != "sum" or len(reduction.axes) != 1 or len(axes) < 2:
        return None
    *batch, m, n = axes
    (k,) = reduction.axes
    dots = tuple(d for s in sums if (d := _dot(s, {x.name for x in batch}, (m.name, n.name, k.name))))
    dtypes = {t.name: t.dtype for t in workload.inputs}
    inputs_only = all(a.tensor in dtypes for d in dots for e in (d.a, d.b) for a in ex.accesses(e))
    if len(dots) != len(sums) or not inputs_only or k.extent >= _MAX_K:
        return None
    types = {element_type(e, dtypes) for d in dots for e in (d.a, d.b)}
    operand = types.pop()
    if types or operand is None or (operand == "float32" and workload.precision != "tf32"):
        return None
    own = Access(workload.stages[-1].name, tuple(ex.axis_index(x.name) for x in axes))
    result = inline(own, rest)
    if not {a.tensor for a in ex.accesses(result)} & {d.stage for d in dots}:
        return None
    return FusedContractionForm(tuple(batch), m, n, k, dots, operand, result)


def _dot(stage: Stage, batch: set[str], names: tuple[str, str, str]) -> FusedDot | None:
    """The stage as a sum of products of rows and columns, whichever is written first."""
    m, n, k = names
    match stage.expression:
        case Apply("mul", (left, right)):
            for a, b in ((left, right), (right, left)):
                of_a, of_b = ex.variables(a) - batch, ex.variables(b) - batch
                if of_a == {m, k} and of_b == {k, n}:
                    return FusedDot(stage.name, a, b)
    return None
