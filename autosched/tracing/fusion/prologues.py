"""Prologues of products: what is computed of their operands in the same kernel, in registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autosched.tracing.fusion.regions import below
from autosched.tracing.fusion.split_points import source_of
from autosched.tracing.values.values import Product, Reduced, Scanned, Value


def may_compute_operands(results: Sequence[Value]) -> bool:
    """True if `FusionLimits.computed` matters: dot units may multiply several pairs, or what a prologue computes."""
    values = list(below(results))
    products = [v for v in values if isinstance(v, Product)]
    if any(p.a.dtype != "float32" or p.precision == "tf32" for p in products):
        return True
    folding: set[Value] = set()
    for value in values:
        folds = isinstance(value, Reduced | Scanned) or not folding.isdisjoint(value.operands)
        folding |= {value} if folds and not isinstance(value, Product) else set()
    sources = dict.fromkeys(source_of(o) for p in products for o in p.operands)
    prologues = [s for s in sources if s.by_kernels and s not in folding]
    readers: dict[Value, set[Value]] = {}
    for value in values:
        for operand in value.operands:
            readers.setdefault(operand, set()).add(value)
    places = {v: n for n, v in enumerate(values)}
    return any(not _is_epilogue(s, readers, places) for s in prologues)


def _is_epilogue(source: Value, readers: Mapping[Value, set[Value]], places: Mapping[Value, int]) -> bool:
    """True if a product is computed for this value alone. `places`: of all values, each after its operands."""
    alone = {source}
    rest = {source}
    while rest:
        here = max(rest, key=lambda v: places[v])
        rest.remove(here)
        if here is not source and not readers[here] <= alone:
            continue
        if isinstance(here, Product):
            return True
        alone.add(here)
        rest |= {*here.operands}
    return False
