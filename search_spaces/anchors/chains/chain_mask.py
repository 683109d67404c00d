"""The mask of a chain: the positions of its streamed axes where no fold gains anything."""

from __future__ import annotations

from functools import lru_cache

from search_spaces.anchors.loops.contributions import Forms, Guards, conditions, positions, ranges
from search_spaces.anchors.loops.loop_parts import Mask
from search_spaces.structure.axes import Structure
from search_spaces.structure.chains.chain import Chain
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access


@lru_cache(256)
def mask_of(chain: Chain) -> Mask:
    """Positions where no fold of the chain gains anything.

    For a product these are the positions where its rows are 0: the other operand is not read there, so that an infinity
    or NaN in it does not count.
    """
    structure = Structure(chain.workload, (*chain.batch, *chain.rows), chain.walked, chain.folds)
    guards = Guards(structure)
    forms = frozenset.intersection(*map(positions, _ruled_out(chain, guards)))
    extents = {x.name: x.extent for x in (*chain.batch, *chain.rows, *chain.walked)}
    beyond = (Affine.of((chain.c.name, -1), offset=chain.c.extent - 1) - form for form in forms)
    read = all(isinstance(p.b, Access) for p in (*chain.inner, *chain.carried.values()))
    ends = read and any(f.minimum(extents) >= 0 for f in beyond)
    if chain.why_at_once:
        return Mask(guards, forms, ends)
    online = _ruled_out(chain, Guards(structure, online=True, ends=guards.ends))
    own, ranged = (frozenset.intersection(*map(of, online)) for of in (positions, ranges))
    return Mask(guards, forms, ends, own, frozenset.intersection(*map(conditions, online)), ranged)


def _ruled_out(chain: Chain, guards: Guards) -> list[Forms]:
    """Positions where each of the folds gains nothing."""
    found: list[Forms] = []
    for fold in chain.folds:
        product = chain.carried.get(fold.name)
        found.append(guards.unchanged(fold) if product is None else guards.equal(product.a, 0.0))
    return found
