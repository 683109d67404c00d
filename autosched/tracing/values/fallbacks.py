"""Values that PyTorch computes, and those among the arguments of its operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from autosched.tracing.values.values import Leaf, Value

_READ_AS = torch.ops.aten.view.dtype


@dataclass(frozen=True, eq=False, kw_only=True)
class Fallback(Value):
    """A value that PyTorch computes: no kernel is made of its operation. `arguments` are values and plain constants.

    `output`: its number among several results. All results of one operation share `operation`.
    """

    operation: FallbackOperation
    output: int | None = None

    @property
    def same_bytes(self) -> Leaf | None:
        """The tensor whose elements it reads as others of as many bytes, where they are: nothing is called."""
        source = self.operation.arguments[0] if self.operation.target is _READ_AS else None
        return source if isinstance(source, Leaf) and source.shape == self.shape and self.readable else None

    @property
    def called(self) -> str:
        """The operator that the user called, and the line, as far as that is known."""
        operator = self.operation.part_of or str(self.operation.target)
        return f"{operator} ({self.line})" if self.line else operator

    @property
    def by_kernels(self) -> bool:
        return False

    @property
    def follows_operands(self) -> bool:
        return False

    @property
    def operands(self) -> tuple[Value, ...]:
        return self.operation.operands


@dataclass(frozen=True, eq=False)
class FallbackOperation:
    """A call of PyTorch's operator `target`; values among its arguments stand for their tensors.

    `why`: the reason; `part_of`: the operator that PyTorch made it of, if any.
    """

    target: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]
    why: str
    part_of: str = ""

    @property
    def operands(self) -> tuple[Value, ...]:
        return tuple(values_in((self.arguments, self.keywords)))


def values_in(nested: Any) -> Iterator[Value]:
    """The values within arguments of an operator."""
    match nested:
        case Value():
            yield nested
        case list() | tuple():
            for part in nested:
                yield from values_in(part)
        case dict():
            yield from values_in(list(nested.values()))
        case slice(start=start, stop=stop, step=step):
            yield from values_in([start, stop, step])


def with_values(nested: Any, of: Callable[[Value], Any]) -> Any:
    """Arguments of an operator with `of` each value in its place."""
    match nested:
        case Value():
            return of(nested)
        case list():
            return [with_values(part, of) for part in nested]
        case tuple():
            return tuple(with_values(part, of) for part in nested)
        case dict():
            return {name: with_values(part, of) for name, part in nested.items()}
        case slice(start=start, stop=stop, step=step):
            return slice(*(with_values(part, of) for part in (start, stop, step)))
        case _:
            return nested
