"""Horizontal fusion: which kernels become one."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from autosched.tracing.fusion.joining import joined


@dataclass(frozen=True, eq=False)
class Made:
    """A value that a kernel computes."""

    operands: tuple[Made, ...] = ()
    by_kernels: bool = True
    elements: int = 8


def computed(values: Sequence[Made], stored: Container[Made]) -> set[Made]:
    """The values, and those that they need and memory has not."""
    rest = [o for v in values for o in v.operands if o not in stored]
    return {*values, *(computed(rest, stored) if rest else ())}


def test_a_pair_is_not_joined_once_one_of_them_computes_more_than_when_it_was_offered() -> None:
    """The second kernel takes in the first one; with the third it would be a kernel of three values."""
    first = Made()
    second = Made((first,))
    third = Made((second,))
    stored: dict[Any, Any] = dict.fromkeys((first, second, third), ())

    def fit(values: Any, dropped: Any) -> Any:
        inside = computed(values, [v for v in stored if v not in dropped])
        return SimpleNamespace(cost=1.0 if len(inside) <= 2 else None, first=SimpleNamespace(products=0))

    reads: dict[Any, Any] = {v: v.operands for v in stored}
    assert joined(reads, {third}, stored, fit, only_alike=False) == [(second,), (third,)]
    assert list(stored) == [second, third]
