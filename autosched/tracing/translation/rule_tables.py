"""The rules of all ATen operators that are not pointwise, by name, and what is asked of their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autosched.tracing.operators import (
    creation_rules,
    gather_rules,
    grouped_rules,
    joining_rules,
    narrow_products,
    product_rules,
    reduction_rules,
    scaled_products,
    scan_rules,
    scatter_rules,
    segment_rules,
    view_translation,
)
from autosched.tracing.operators.windows import convolution, enlarging, pooling, pooling_gradients

# Arguments that operators take from memory, computed before: operands of products, and tables of gathers.
FROM_MEMORY = {
    **dict.fromkeys(
        {**product_rules.RULES, **narrow_products.RULES, **scaled_products.RULES, **convolution.RULES}, range(3)
    ),
    **dict.fromkeys(gather_rules.RULES, range(1)),
}
# Operators whose constant results are computed once, and kept in memory.
COMPUTED_ONCE = {*FROM_MEMORY, *reduction_rules.RULES, *scan_rules.RULES}
_TABLES = (
    creation_rules.RULES,
    view_translation.RULES,
    product_rules.RULES,
    grouped_rules.RULES,
    narrow_products.RULES,
    scaled_products.RULES,
    gather_rules.RULES,
    scatter_rules.RULES,
    joining_rules.RULES,
    scan_rules.RULES,
    segment_rules.RULES,
    convolution.RULES,
    enlarging.RULES,
    pooling.RULES,
    pooling_gradients.RULES,
)


def rule_of(name: str, overload: str) -> Callable[..., Any] | None:
    """The rule of an ATen operator that is not pointwise, or None."""
    found = reduction_rules.rule_of(name, overload)
    for rules in _TABLES:
        found = found or rules.get(name)
    return found
