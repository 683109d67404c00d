"""Values of constants alone that are prepared: computed before the first call, and again when a constant has changed.

Before:  y = x @ cat([a, b], 1)
After:   w = cat([a, b], 1), once; y = x @ w
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from autosched.tracing.fusion.regions import below
from autosched.tracing.rewriting.terms import (
    Operations,
    is_computed_from_nothing,
    takes_other_operands,
    with_operands,
)
from autosched.tracing.values.values import Prepared, Value, View


def with_prepared(results: Sequence[Value], given: Container[Value]) -> tuple[Value, ...]:
    """The results with the largest values of constants prepared, but for those that the user's function has: `given`.

    Views cost nothing where they are read: what they are views of is prepared. What is computed from values that a rule
    has prepared stays where it is read.
    """
    values = list(below(results))
    constants: set[Value] = set()
    numbers: set[Value] = set()
    for value in values:
        known = takes_other_operands(value) and constants | numbers >= {*value.operands}
        if is_computed_from_nothing(value) or (known and numbers >= {*value.operands}):
            numbers.add(value)
        elif (value.constant and not isinstance(value, Prepared)) or known:
            constants.add(value)
    made: dict[Value, Value] = {}
    operations = Operations()
    for value in values:
        whole = value in constants and value not in given and value.readable and not isinstance(value, View)
        made[value] = prepared(value) if whole else with_operands(value, made.__getitem__, operations)
    return tuple(made[r] for r in results)


def prepared(value: Value) -> Prepared:
    """A value of constants, prepared."""
    leaves = tuple(v for v in below([value]) if v.constant)
    return Prepared(
        name=f"{value.name}_prepared",
        shape=value.shape,
        dtype=value.dtype,
        line=value.line,
        strides=value.strides,
        argument=value,
        constants=leaves,
    )
