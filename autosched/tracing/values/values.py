"""The tensors of a traced function as a graph, which is cut into kernels.

A value says how one element is computed; its place in memory, if any, is decided later. Dimensions are logical: a
transposition is a value of its own, and costs nothing until it is stored.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol

import torch

from search_spaces.workloads.dtypes import DTYPES, dtype, is_integer
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access, Expression, call
from search_spaces.workloads.strides import dense_strides

# The `dtype` of a Python number or truth value.
NUMBER = "number"

# The index of an element, per dimension: an affine form of the axes of a kernel, or data (see `Gathered`).
Index = tuple[Affine | Expression, ...]
# Extents of the axes that indices are made of, by name.
Extents = Mapping[str, int]
# What a value is computed from: numbers and positions; constants, and these; or anything else.
Source = Literal["nothing", "constants", "arguments"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Value:
    """A tensor of the function: `name` as in the captured graph, `dtype` as `search_spaces.workloads.dtypes` calls it.

    `line`: the user's source line, "" where that is unknown. `strides`: those in memory once stored, PyTorch's, where
    these are dense in another order than that of the dimensions, such as channels_last, or those of a part of another
    value's memory; None if they are in that order.

    Only PyTorch takes a value that is not `readable`: its `dtype` may be any of PyTorch's, or `NUMBER` for a Python
    scalar, and a size that depends on data is -1.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    line: str = field(default="", repr=False)
    strides: tuple[int, ...] | None = field(default=None, repr=False)
    source: Source = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Now that it is known of the operands: graphs are deeper than Python's stack.
        object.__setattr__(self, "source", self._source())

    def _source(self) -> Source:
        if self.constant:
            return "constants"
        sources = {o.source for o in self.operands}
        if not self.follows_operands or "arguments" in sources:
            return "arguments"
        return "constants" if "constants" in sources else "nothing"

    @property
    def follows_operands(self) -> bool:
        """True if its elements change with those of its operands alone, so far as tracing knows."""
        return bool(self.operands)

    @property
    def operands(self) -> tuple[Value, ...]:
        """The values it is computed from."""
        return ()

    @property
    def by_kernels(self) -> bool:
        """True if a kernel may compute it."""
        return True

    @property
    def constant(self) -> bool:
        """True if calls leave its elements as they are, and they lie in memory."""
        return False

    @property
    def readable(self) -> bool:
        """True if kernels can read it."""
        return self.dtype in DTYPES and min(self.shape, default=0) >= 0

    @cached_property
    def memory_strides(self) -> tuple[int, ...]:
        """Its strides when stored."""
        return dense_strides(self.shape) if self.strides is None else self.strides

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * dtype(self.dtype).bytes if self.readable else 0


@dataclass(frozen=True, eq=False, kw_only=True)
class Leaf(Value):
    """An input of the function, or a constant tensor: it is in memory, with these strides.

    `position`: number of the argument; a constant has a `tensor` instead, which is `trained` when it requires a
    gradient. `changes`: the function writes to the tensor, or binds another one in its place. `folded`: it was computed
    from nothing when the function was traced, so that nobody else can change its elements. `static`: an argument whose
    elements mostly stay from call to call, as those of a model's parameters.
    """

    strides: tuple[int, ...]
    position: int | None = None
    tensor: torch.Tensor | None = field(default=None, repr=False)
    changes: bool = False
    folded: bool = False
    static: bool = False

    @property
    def by_kernels(self) -> bool:
        return False

    @property
    def constant(self) -> bool:
        """True if calls leave its elements as they are: those of parameters, and of other tensors closed over."""
        return self.static or (self.tensor is not None and not self.changes)

    @property
    def trained(self) -> bool:
        return self.tensor is not None and self.tensor.requires_grad


@dataclass(frozen=True, eq=False, kw_only=True)
class Pointwise(Value):
    """An expression of the elements of its arguments, broadcast as PyTorch does; a constant has none.

    `expression`: the element, as a `templates.template` of those of the arguments. Elements of a value of integers are
    expressions of integers, all others are float32.
    """

    arguments: tuple[Value, ...]
    expression: Expression

    @property
    def follows_operands(self) -> bool:
        return True

    @property
    def operands(self) -> tuple[Value, ...]:
        return self.arguments

    @property
    def is_copy(self) -> bool:
        """True if its elements are those of its argument, unchanged."""
        if [(a.shape, a.dtype) for a in self.arguments] != [(self.shape, self.dtype)]:
            return False
        return self.expression == placeholder(0, self.dtype)


@dataclass(frozen=True, eq=False, kw_only=True)
class Arange(Value):
    """`start + step * i` for the positions i of its one dimension (ATen: arange)."""

    start: int
    step: int

    @property
    def follows_operands(self) -> bool:
        return True


@dataclass(frozen=True, eq=False, kw_only=True)
class Reduced(Value):
    """A reduction of the argument over some of its dimensions, which are dropped."""

    operator: Literal["sum", "max", "min", "prod"]
    argument: Value
    dims: tuple[int, ...]

    @property
    def operands(self) -> tuple[Value, ...]:
        return (self.argument,)


@dataclass(frozen=True, eq=False, kw_only=True)
class ScanOperand(Value):
    """Formal parameter of a scan's combine function."""


@dataclass(frozen=True, eq=False)
class ScanOperation:
    """Values of one shape that are scanned together along a dimension (`search_spaces.workloads.scans`).

    `combine`: the combine function, an expression per value.
    """

    name: str
    elements: tuple[Value, ...]
    combine: tuple[Expression, ...]
    dim: int
    reverse: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Scanned(Value):
    """One of the results of a scan."""

    operation: ScanOperation
    output: int = 0

    @property
    def follows_operands(self) -> bool:
        return False

    @property
    def operands(self) -> tuple[Value, ...]:
        return self.operation.elements


@dataclass(frozen=True, eq=False, kw_only=True)
class Product(Value):
    """Sums of products of elements of two values, as einsum has them.

    `a_loops`, `b_loops`: the loop along every dimension of `a` and `b`. Loops are numbered from 0: first those along
    the dimensions of this value, then the summed ones. For matrices [m, k] and [k, n] they are (0, 2) and (2, 1).
    `precision`: as that of workloads; "" where it means nothing, as for 16 bits.
    """

    a: Value
    b: Value
    a_loops: tuple[int, ...]
    b_loops: tuple[int, ...]
    precision: str = ""

    @property
    def summed(self) -> tuple[int, ...]:
        """The extents of the summed loops, in order."""
        extents = dict(zip(self.a_loops, self.a.shape, strict=True))
        return tuple(extents[loop] for loop in sorted(extents) if loop >= len(self.shape))

    @property
    def operands(self) -> tuple[Value, ...]:
        return (self.a, self.b)


class ViewKind(Protocol):
    """The index map of a view (`views`): data, equal where the same elements of tensors of one shape are taken."""

    def apply(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same view of any tensor of the argument's shape.

        Raises:
            RuntimeError: no strides make it of that tensor.
        """

    def source_index(self, index: Index, extents: Extents) -> Index:
        """The index of the argument for an index of the view.

        Raises:
            NotAffineError, AxisCutError: there is none (see `views.Reshape`).
        """


@dataclass(frozen=True, eq=False, kw_only=True)
class View(Value):
    """The elements of the argument at other indices."""

    argument: Value
    kind: ViewKind

    @property
    def operands(self) -> tuple[Value, ...]:
        return (self.argument,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Padded(Value):
    """The argument with `before` more elements before its own in every dimension, and any number after them: all
    `fill`.
    """

    argument: Value
    before: tuple[int, ...]
    fill: Expression

    @property
    def operands(self) -> tuple[Value, ...]:
        return (self.argument,)


# Parts of a concatenation that one kernel reads: more are concatenated in groups, stored before.
MOST_JOINED = 64


@dataclass(frozen=True, eq=False, kw_only=True)
class Joined(Value):
    """The parts concatenated along a dimension. `in_groups`: each part is a group of the parts, to be stored."""

    parts: tuple[Value, ...]
    dim: int
    in_groups: bool = False

    @property
    def operands(self) -> tuple[Value, ...]:
        return self.parts


@dataclass(frozen=True, eq=False, kw_only=True)
class InParts(Value):
    """Parts that are stored at their places in the memory of the whole: no kernel does more.

    `begins`: the position of each part's first element; `steps`: from one element of a part to the next one, along
    every dimension. So a part's strides are those of the whole, times `steps`.
    """

    parts: tuple[Value, ...]
    begins: tuple[tuple[int, ...], ...]
    steps: tuple[int, ...]

    @property
    def by_kernels(self) -> bool:
        return False

    @property
    def operands(self) -> tuple[Value, ...]:
        return self.parts

    @property
    def offsets(self) -> tuple[int, ...]:
        """The first element of each part, in elements of memory."""
        return tuple(sum(map(operator.mul, begin, self.memory_strides)) for begin in self.begins)

    @property
    def strides_of_parts(self) -> tuple[int, ...]:
        return tuple(step * stride for step, stride in zip(self.steps, self.memory_strides, strict=True))


@dataclass(frozen=True, eq=False, kw_only=True)
class Gathered(Value):
    """Elements of `table` at indices that are data (ATen: index): per dimension of the table a value, or a dimension of
    this.

    Values of the index are broadcast to this value's shape, as PyTorch does.
    """

    table: Value
    index: tuple[Value | int, ...]

    @property
    def operands(self) -> tuple[Value, ...]:
        return (self.table, *(i for i in self.index if isinstance(i, Value)))


@dataclass(frozen=True, eq=False, kw_only=True)
class Segments(Value):
    """The number of elements of sorted `ends` that are at most each position (ATen: bucketize, to the right).

    Both are integers; `ends` have one dimension, and are in memory.
    """

    ends: Value
    position: Value

    @property
    def operands(self) -> tuple[Value, ...]:
        return (self.ends, self.position)


@dataclass(frozen=True, eq=False, kw_only=True)
class Prepared(Value):
    """A value of constants alone, computed before the first call, and again when one of them has changed.

    `argument`: how it is computed from the constants, which are its `operands`: in float64, and rounded once.
    """

    argument: Value
    constants: tuple[Value, ...]

    @property
    def by_kernels(self) -> bool:
        return False

    @property
    def constant(self) -> bool:
        return True

    @property
    def operands(self) -> tuple[Value, ...]:
        return self.constants


def placeholder(number: int, dtype: str) -> Expression:
    """A placeholder in an expression for the element of an argument of that element type."""
    return as_read(Access(str(number), ()), dtype)


def as_read(element: Expression, dtype: str) -> Expression:
    """A read of a tensor of that element type: as an integer, if it is one."""
    return call("to_integer", element) if is_integer(dtype) else element
