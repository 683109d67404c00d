"""Stages that only name an expression, replaced by it wherever they are read.

    e[r, c] = exp(x[r, c])                             total[r] = sum over c of exp(x[r, c])
    total[r] = sum over c of e[r, c]              →    out[r, c] = div(exp(x[r, c]), total[r])
    out[r, c] = div(e[r, c], total[r])

Such a stage folds nothing, and is a float32 as every expression is: no rounding is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access, Expression
from search_spaces.workloads.expressions.walking import accesses, reindexed, rewritten
from search_spaces.workloads.stages import Stage

# An expression that reads itself twice, ten times over, has a thousand parts: beyond that, stages are not inlined.
_MOST_PARTS = 1000


def inlined(stages: Sequence[Stage], precision: str, outputs: Collection[str]) -> tuple[Stage, ...]:
    """The stages with those that only name an expression inlined; outputs stay.

    So do operands of dots that are less precise than float32: an operand that is a stage makes a dot of a sum of
    products (`Stage.is_contraction`).
    """
    dots = [s for s in stages if s.is_contraction and precision != "ieee"]
    multiplied = {a.tensor for s in dots for a in accesses(s.expression)}
    named: dict[str, Stage] = {}
    kept = []
    for stage in stages:
        whole = _with(stage.expression, named)
        made = replace(stage, expression=whole if ex.parts(whole) <= _MOST_PARTS else stage.expression)
        names_only = made.is_pointwise and made.dtype == "float32" and made.name not in multiplied
        if names_only and made.expression is whole and stage.name not in outputs:
            named[made.name] = made
        kept.append(made)
    return tuple(kept)


def _with(expression: Expression, named: Mapping[str, Stage]) -> Expression:
    def change(e: Expression) -> Expression | None:
        if not isinstance(e, Access) or e.tensor not in named:
            return None
        return element(named[e.tensor], e.index)

    return rewritten(expression, change)


def element(stage: Stage, index: Sequence[Affine]) -> Expression:
    """The value at an index of a stage that folds nothing."""
    return at_index(stage.expression, dict(zip((a.name for a in stage.axes), index, strict=True)))


def at_index(expression: Expression, index: Mapping[str, Affine]) -> Expression:
    """The expression where its axes have these values."""
    return reindexed(expression, lambda form: form.substituted(index))
