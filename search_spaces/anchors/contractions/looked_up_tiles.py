"""Tiles of operands at places that are data: the variables of an iteration, and what is not there.

for k.0:
  let place in 32 = col[k0.0]
  b = load b[place*128 + k.1*64 : +64, n.0*256 : +256]
  outside += where(0 <= col[k0.0] < 32, 0, NaN)           one number, instead of NaN for all elements of the tile
  acc += dot(a, b)
acc = acc + outside

The nearest place that exists is read instead of one that does not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from search_spaces.programs.lowering import Emitter
from search_spaces.programs.statements import Let, Statement
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.structure.contraction import Contraction
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Expression, Literal
from search_spaces.workloads.expressions.walking import rewritten, variables
from search_spaces.workloads.names import Names

_NOT_A_NUMBER = ex.sub(Literal(math.inf), Literal(math.inf))


@dataclass
class Places:
    """The places of an iteration: the statements that bind them, and those before its loop."""

    form: Contraction
    emitter: Emitter
    before: list[Statement] = field(default_factory=list)
    body: list[Statement] = field(default_factory=list)

    @staticmethod
    def of(form: Contraction, place: Mapping[str, Slice], dtypes: Mapping[str, str], names: Names) -> Places:
        """The places at a place of all axes."""
        everywhere = dict(place)
        found = Places(form, Emitter(everywhere, dtypes, names))
        summed = {x.name for x in form.reduced}
        for x in form.looked_up:
            variable, tile = names.fresh("place"), found.emitter.tile(x.number, "number")
            made = [*found.emitter.body, Let(variable, x.count, tile.name)]
            found.emitter.body = []
            (found.before if summed.isdisjoint(variables(x.number)) else found.body).extend(made)
            everywhere[x.variable] = Slice(axis_index(variable))
        return found

    def outside(self, operand: Expression) -> Tile | None:
        """NaN if an operand as stored is at no place, otherwise 0; None if it is always at one."""
        place = self.form.place_of(operand)
        if place is None:
            return None
        tile = self.emitter.tile(ex.call("where", place.exists, Literal(0.0), _NOT_A_NUMBER), "outside")
        self.body += self.emitter.body
        self.emitter.body = []
        return tile


def with_places(form: Contraction, operand: Expression) -> Expression:
    """A computed operand with NaN for elements at no place."""

    def chosen(e: Expression) -> Expression | None:
        place = form.place_of(e)
        return ex.call("where", place.exists, e, _NOT_A_NUMBER) if place else None

    return operand if isinstance(operand, Access) or not form.looked_up else rewritten(operand, chosen)
