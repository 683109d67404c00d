"""Parts of workloads: axes, tensors in memory, and stages that compute one tensor of others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from search_spaces.errors import InputError, unknown_name
from search_spaces.workloads.dtypes import dtype, is_float, is_integer, range_of, round_to
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.walking import accesses, flops, inlined_depth, variables
from search_spaces.workloads.scans import Scan
from search_spaces.workloads.segments import cut_axes
from search_spaces.workloads.strides import check_strides, declared_strides, dense_strides, distinct_elements, span

# An axis or a dimension may have this many positions: kernels count them in 32-bit integers.
MAX_EXTENT = 2**31 - 1
# A tensor may have this many elements: the range of addresses of 48 bits.
MAX_ELEMENTS = 2**48

# Depth of nesting once pointwise stages are inlined. Printing, writing and reading expressions is recursive, two or
# three calls for each level, and Python allows a thousand such calls in all.
MAX_DEPTH = 250

# The pointwise operators that join two partial results of a reduction, by its own.
JOINED_BY = {"sum": "add", "max": "maximum", "min": "minimum", "prod": "mul"}


@dataclass(frozen=True, slots=True)
class Axis:
    """A named loop of a stage, running from 0 below `extent`."""

    name: str
    extent: int


# Distributions of the positions of an axis over its segments, with which a workload may be timed: by ends drawn
# uniformly; most in a few segments; all in one.
HISTOGRAMS = ("uniform", "skewed", "one_hot")


@dataclass(frozen=True)
class Tensor:
    """An input: dense and row-major, or with `strides`, elements from one index to the next in every dimension.

    A stride of 0 places a whole dimension in the same memory: one matrix shared by a batch. Otherwise no two elements
    may share memory. Strides implied by the shape become None, so that equal layouts are equal tensors. The values of a
    `constant` are the same at every call, as those of weights are: a kernel may store them in another layout once.
    `histogram`: for the ends of segments, the one distribution that they are timed with; "": several of them.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None
    constant: bool = False
    histogram: str = ""

    def __post_init__(self) -> None:
        check_shape(self.name, self.shape)
        dtype(self.dtype)
        self._check_histogram()
        if self.strides is not None:
            check_strides(self.name, self.shape, self.strides)
            object.__setattr__(self, "strides", declared_strides(self.shape, self.strides))

    def _check_histogram(self) -> None:
        """Raise InputError if there is no histogram of that name, or these are no ends of segments."""
        if self.histogram == "":
            return
        if self.histogram not in HISTOGRAMS:
            raise unknown_name("histogram", str(self.histogram), HISTOGRAMS)
        if len(self.shape) != 1 or not is_integer(self.dtype):
            what = f"{self.name}{list(self.shape)} {self.dtype}"
            raise InputError(f"histogram={self.histogram!r} of {what}; expected the ends of segments, 1-D integers")

    @cached_property
    def effective_strides(self) -> tuple[int, ...]:
        """Elements from one index to the next, per dimension: as declared, or dense."""
        return dense_strides(self.shape) if self.strides is None else self.strides

    @property
    def span(self) -> int:
        """Elements of memory from the first element to the last, both included."""
        return span(self.shape, self.effective_strides)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of the elements themselves, shared ones counted once; without gaps between them."""
        return distinct_elements(self.shape, self.effective_strides) * dtype(self.dtype).bytes


@dataclass(frozen=True)
class Reduction:
    """Fold of a stage over its reduction axes: `sum`, `max`, `min` or `prod`."""

    operator: Literal["sum", "max", "min", "prod"]
    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        check_axes("reduction", self.axes)
        if not self.axes:
            raise InputError("a reduction over no axis; expected at least one")
        if self.operator not in JOINED_BY:
            raise InputError(f"unknown reduction {self.operator!r} (allowed: {', '.join(JOINED_BY)})")


@dataclass(frozen=True)
class Stage:
    """`name[axes] = reduction over its axes of expression`, `scan along one of them`, or just `expression`."""

    name: str
    axes: tuple[Axis, ...]
    expression: ex.Expression
    reduction: Reduction | None = None
    dtype: str = "float32"
    scan: Scan | None = None

    @property
    def is_pointwise(self) -> bool:
        """True if an element is just the expression, and may be computed where it is read."""
        return self.reduction is None and self.scan is None

    @property
    def combination(self) -> ex.Expression | None:
        """The combination of its value in its scan, if it has one."""
        return self.scan.combine[self.scan.members.index(self.name)] if self.scan else None

    @property
    def factors(self) -> tuple[ex.Expression, ...]:
        """The two factors of a sum of products, each with axes of its own, as those of dots; nothing of others."""
        match self.expression:
            case ex.Apply("mul", (a, b)) if self.reduction is not None and self.reduction.operator == "sum":
                of_a, of_b = variables(a), variables(b)
                return (a, b) if of_a - of_b and of_b - of_a else ()
            case _:
                return ()

    @cached_property
    def cut(self) -> frozenset[str]:
        """The axes of segments into which its folded axes are cut: each of their positions is in one segment."""
        return cut_axes(self.expression, [x.name for x in self.reduction.axes] if self.reduction else [])

    @property
    def needed_points(self) -> int:
        """Evaluations of the expression that are enough: of an axis cut into segments each position is in one."""
        return math.prod(n for x, n in self.extents.items() if x not in self.cut)

    @property
    def dot_flops(self) -> int:
        """Operations of a sum of products by dots, a multiply-add being two."""
        return 2 * self.needed_points

    @property
    def flops(self) -> int:
        """Floating-point operations, a fold of a reduction counted as one; a factor counts once for its own axes."""
        if self.factors:
            own = [math.prod(self.extents[v] for v in variables(f) - self.cut) * flops(f) for f in self.factors]
            return self.dot_flops + sum(own)
        combining = flops(self.combination) if self.combination else int(self.reduction is not None)
        return self.needed_points * (flops(self.expression) + combining)

    @property
    def terms(self) -> int:
        """Number of elements that become one value, at most."""
        if self.scan:
            return self.extents[self.scan.axis]
        return math.prod(a.extent for a in self.reduction.axes) if self.reduction else 1

    @property
    def read(self) -> tuple[str, ...]:
        """Its operands: tensors that its expression reads, and the other members of its scan."""
        members = self.scan.members if self.scan else ()
        return (*self.read_elements, *(m for m in members if m != self.name))

    @property
    def read_elements(self) -> tuple[str, ...]:
        """The tensors that its expression reads at affine indices."""
        return tuple(a.tensor for a in accesses(self.expression))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(a.extent for a in self.axes)

    @cached_property
    def loops(self) -> tuple[Axis, ...]:
        """The axes of the stage: its own, then those that it folds."""
        return (*self.axes, *(self.reduction.axes if self.reduction else ()))

    @cached_property
    def extents(self) -> Mapping[str, int]:
        """Extent of every loop of the stage, reduction loops included."""
        return {a.name: a.extent for a in self.loops}

    @property
    def points(self) -> int:
        """Number of evaluations of the expression."""
        return math.prod(self.extents.values())

    @property
    def is_contraction(self) -> bool:
        """True for a sum of products of two tensor elements, which a dot computes."""
        e = self.expression
        return (
            self.reduction is not None
            and self.reduction.operator == "sum"
            and isinstance(e, ex.Apply)
            and e.operator == "mul"
            and all(isinstance(a, ex.Access) for a in e.arguments)
            and e.arguments[0] != e.arguments[1]
        )


def check_axes(name: str, axes: tuple[Axis, ...]) -> None:
    """Raise InputError unless the axes have names of their own and positive extents."""
    for axis in axes:
        check_name(f"{name}, axis", axis.name)
        check_shape(f"{name}, axis {axis.name}", (axis.extent,))
    names = [a.name for a in axes]
    if len(set(names)) < len(names):
        raise InputError(f"{name}: axes {names}; expected each once")


def check_name(what: str, name: str) -> None:
    """Raise InputError unless it is an identifier: names appear in generated code, and in comments of it."""
    if not (isinstance(name, str) and name.isidentifier()):
        raise InputError(f"{what} {name!r}: expected a name of letters, digits and _, such as x0")


def check_depth(stages: Sequence[Stage]) -> None:
    """Raise InputError if more than `MAX_DEPTH` operators are nested."""
    if sum(ex.depth(s.expression) for s in stages) <= MAX_DEPTH:
        return
    below: dict[str, int] = {}
    for stage in stages:
        depth = ex.depth(stage.expression)
        if depth <= MAX_DEPTH:
            depth = inlined_depth(stage.expression, below)
        if depth > MAX_DEPTH:
            raise InputError(f"stage {stage.name!r}: {depth} operators lie within each other; at most {MAX_DEPTH} may")
        below[stage.name] = depth if stage.is_pointwise else 0


def check_extents(stages: Iterable[Stage]) -> None:
    """Raise InputError unless every axis has the same extent in all stages that have it."""
    known: dict[str, tuple[int, str]] = {}
    for stage in stages:
        for axis in stage.loops:
            extent, first = known.setdefault(axis.name, (axis.extent, stage.name))
            if extent != axis.extent:
                raise InputError(
                    f"axis {axis.name!r} has extent {extent} in stage {first!r} and {axis.extent} in {stage.name!r}; "
                    "expected one extent for a name"
                )


def check_shape(name: str, shape: tuple[int, ...]) -> None:
    """Raise InputError unless every size is a positive integer that 32 bits count, and the tensor fits memory."""
    for size in shape:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InputError(f"{name}: size {size!r} is not allowed; expected a positive integer")
        if size > MAX_EXTENT:
            raise InputError(f"{name}: size {size}; at most {MAX_EXTENT} (2^31 - 1) is allowed along a dimension")
    if math.prod(shape) > MAX_ELEMENTS:
        raise InputError(f"{name}: {math.prod(shape)} elements; at most {MAX_ELEMENTS} (2^48) are allowed")


def check_index(read: ex.Access | ex.Gather, index: Affine, size: int | None, stage: Stage) -> None:
    """Raise InputError unless the index is of axes of the stage, and one of a dimension of that size, if it has one."""
    unknown = {v for v, _ in index.terms} - stage.extents.keys()
    if unknown:
        raise InputError(f"{ex.to_text(read)} uses {sorted(unknown)}, which is no axis of {stage.name!r}")
    if size is None:
        return
    if index.minimum(stage.extents) < 0:
        raise InputError(f"{ex.to_text(read)} reaches a negative index")
    last = index.maximum(stage.extents)
    if last >= size:
        raise InputError(f"{ex.to_text(read)} reaches index {last} of a dimension of size {size}")


def check_fill(access: ex.Access, element: str | None) -> None:
    """Raise InputError unless the value read outside of a tensor is a number, and a possible element.

    `element`: their type, None if the tensor is no input.
    """
    fill = access.fill
    if fill is None or math.isnan(fill):
        raise InputError(f"{ex.to_text(access)}: expected a number to be read outside")
    if element is None:
        return
    if is_float(element):
        held = float(round_to(np.array([fill], np.float32), element)[0]) == fill
    else:
        least, largest = range_of(element)
        held = isinstance(fill, int) and least <= fill <= largest
    if not held:
        raise InputError(f"{ex.to_text(access)}: {fill} is no {element}; expected one of the values that it has")
