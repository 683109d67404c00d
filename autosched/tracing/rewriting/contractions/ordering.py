"""The cheapest order of the contractions of a product of several tensors, by dynamic programming over subsets.

C.-C. Lam, P. Sadayappan, R. Wenger, "On Optimizing a Class of Multi-Dimensional Loops with Reductions for Parallel
Execution", 1997. For matrices in a row it is the matrix chain order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autosched.tracing.rewriting.contractions.costs import contraction_cost, sum_cost
from autosched.tracing.rewriting.contractions.loops import Loops

# The number of a factor, or two orders whose results are multiplied.
Tree = int | tuple["Tree", "Tree"]
Order = tuple[float, Tree]
# Part that counts of the cost of what is prepared once: of orders that cost a call the same, the cheapest to prepare.
_ONCE = 1e-6


@dataclass(frozen=True)
class Factors:
    """Factors by their `loops`. `kept`: loops of the result. `constant`: those that are, which are multiplied with one
    another only if they are `folded`, at next to no cost.
    """

    loops: tuple[frozenset[int], ...]
    kept: frozenset[int]
    constant: tuple[bool, ...]
    narrow: bool
    extents: Loops
    folded: bool = False

    def remaining(self, members: int) -> frozenset[int]:
        """The loops of the product of some factors, a bit each, that are not summed within it."""
        inside = self._union(members)
        return inside & (self.kept | self._union(~members))

    def _union(self, members: int) -> frozenset[int]:
        return frozenset().union(*(loops for n, loops in enumerate(self.loops) if members >> n & 1))

    def are_constant(self, members: int) -> bool:
        return all(fixed for n, fixed in enumerate(self.constant) if members >> n & 1)

    def single(self, number: int) -> Order:
        """One factor, summed over the loops that only it has."""
        own, left = self.loops[number], self.remaining(1 << number)
        if own == left or self.constant[number]:
            return 0.0, number
        return sum_cost(self.extents.extent(own), self.extents.extent(left), self.narrow), number

    def product(self, a: int, b: int) -> float:
        """The cost of the product of what some and what other factors make."""
        constant = self.are_constant(a | b)
        if constant and not self.folded:
            return math.inf
        cost = contraction_cost(
            self.remaining(a), self.remaining(b), self.remaining(a | b), self.narrow, self.extents.extent
        )
        return _ONCE * cost if constant else cost


def cheapest_order(factors: Factors) -> Order:
    """The order of least cost; infinite where there is none."""
    count = len(factors.loops)
    best: dict[int, Order] = {1 << n: factors.single(n) for n in range(count)}
    for members in range(1, 1 << count):
        if members not in best:
            ways = [
                (best[a][0] + best[b][0] + factors.product(a, b), (best[a][1], best[b][1])) for a, b in _halves(members)
            ]
            best[members] = min(ways, key=lambda way: way[0])
    return best[(1 << count) - 1]


def _halves(members: int) -> Iterator[tuple[int, int]]:
    """The ways to part a set in two, each once."""
    lowest = members & -members
    part = (members - 1) & members
    while part:
        if part & lowest:
            yield part, members ^ part
        part = (part - 1) & members


def members_of(tree: Tree) -> Sequence[int]:
    """The numbers of the factors of an order."""
    return [tree] if isinstance(tree, int) else [*members_of(tree[0]), *members_of(tree[1])]
