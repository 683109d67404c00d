"""Chains: products, folds of their results, and products of those (`structure.chains.finding`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from search_spaces.structure.folds import dependent
from search_spaces.structure.folds.dependent import LOWEST, Group
from search_spaces.workloads.expressions.expression import Expression, mul
from search_spaces.workloads.expressions.walking import accesses
from search_spaces.workloads.workload import Axis, Stage, Workload

# Sums of a row that stay in registers during the loop over their summands.
LONGEST_CARRIED = 256
# Points of a row in registers of a program, of 16 rows at least, where the whole streamed axis is in one tile.
LONGEST_AT_ONCE = 1024


@dataclass(frozen=True)
class ChainedProduct:
    """stage[…] = sum over `summed` of a · b, multiplied as `dtype`: `a` has the rows, `b` axes that the rows have not.

    Of an inner product `b` has the streamed axes, of a carried one the axes that it carries, `carried`.
    """

    stage: str
    a: Expression
    b: Expression
    summed: tuple[Axis, ...]
    dtype: str
    carried: tuple[Axis, ...] = ()


@dataclass(frozen=True)
class Chain:
    """Inner products, and the folds of a loop over one side of them.

    Tiles lie along `m` and `c`, the last of the rows and of the streamed axes (`walked`); a program or an iteration has
    one position of every other one. `folds` are over the streamed axes, with everything inlined but folds and inner
    products; `carried` those of them that are products, by name. `results` are the outputs, each with everything
    inlined but the folds of the loop. `beside` are products of rows with columns of carried products, summed over the
    same axes as inner products: those that an adapter is added to. `workload` has these axes and these folds, and
    computes the same as the given one; `coefficient` is the largest factor of an exponent in it.
    """

    workload: Workload
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    walked: tuple[Axis, ...]
    inner: tuple[ChainedProduct, ...]
    folds: tuple[Stage, ...]
    carried: Mapping[str, ChainedProduct] = field(hash=False)
    results: tuple[tuple[str, Expression], ...]
    beside: tuple[ChainedProduct, ...] = ()
    coefficient: float = 1.0

    @property
    def m(self) -> Axis:
        return self.rows[-1]

    @property
    def c(self) -> Axis:
        return self.walked[-1]

    @property
    def outer(self) -> tuple[Axis, ...]:
        """The axes of which a program has one position."""
        return (*self.batch, *self.rows[:-1])

    @property
    def depths(self) -> tuple[Axis, ...]:
        """The axes that inner products sum over and that carried ones carry, each once."""
        carried = (x for p in self.carried.values() for x in p.carried)
        return tuple(dict.fromkeys((*(x for p in self.inner for x in p.summed), *carried)))

    @property
    def row_tensors(self) -> tuple[str, ...]:
        """The inputs in the left operands of inner products."""
        return tuple(dict.fromkeys(a.tensor for p in self.inner for a in accesses(p.a)))

    @property
    def walked_tensors(self) -> tuple[str, ...]:
        """The inputs in right operands."""
        products = (*self.inner, *self.carried.values(), *self.beside)
        return tuple(dict.fromkeys(a.tensor for p in products for a in accesses(p.b)))

    @cached_property
    def walk(self) -> Group:
        """The folds in one shared loop, if they can share it."""
        return groups_of(self)[0]

    @cached_property
    def walks(self) -> int:
        """Number of loops that the folds need if no tile has all points: more than one without a rule to share one."""
        return len(groups_of(self))

    @property
    def why_at_once(self) -> str | None:
        """Reason that the whole streamed axis must be in one tile, or None if it need not."""
        if self.points:
            return f"{self.points[0]} has {axes_text(self.walked)}, and needs whole folds over it"
        if self.beside:
            return f"{self.beside[0].stage} is summed over what {self.inner[0].stage} is, beside it"
        long = next((x for p in self.carried.values() for x in p.carried if x.extent > LONGEST_CARRIED), None)
        if long:
            return f"{long.extent} sums a row along {long.name} do not stay in registers"
        if self.walks > 1:
            late = groups_of(self)[1].folds[0].name
            return f"{late} needs what another fold makes of all of {axes_text(self.walked)}"
        return None

    @property
    def why_not_held(self) -> str | None:
        """Reason that no kernel computes it: the whole streamed axis must be in one tile, and is too long for that."""
        held = len(self.walked) == 1 and self.c.extent <= LONGEST_AT_ONCE
        return None if held else self.why_at_once

    @property
    def has_several(self) -> bool:
        """True if an iteration computes or adds up several products, as for gradients, whose sums take registers."""
        return len(self.inner) > 1 or len(self.carried) > 1

    @property
    def points(self) -> tuple[str, ...]:
        """The outputs that have streamed axes."""
        stages = {s.name: s for s in self.workload.stages}
        return tuple(n for n, _ in self.results if not {*self.walked}.isdisjoint(stages[n].axes))


def groups_of(chain: Chain) -> list[Group]:
    """The folds of the chain, divided into as few loops as possible."""
    bodies = {s.name: s.expression for s in chain.folds}
    for name, product in chain.carried.items():
        bodies[name] = mul(product.a, product.b)
    results = [e for _, e in chain.results]
    lowest = LOWEST / max(1.0, chain.coefficient)
    return dependent.groups(chain.folds, bodies, results, online=True, lowest=lowest)


def axes_text(axes: Sequence[Axis] | Collection[Axis]) -> str:
    """Names of axes for messages."""
    return ", ".join(x.name for x in axes) or "no axis"
