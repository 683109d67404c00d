"""The state of a kernel while elements are pulled from its output: axes, stages, reads, and the reason to refuse it."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autosched.tracing.values.reads import Reads, at_its_axes
from autosched.tracing.values.scanned import ScannedStages
from autosched.tracing.values.tensor_reads import MemoryView, base_of, memory_view
from autosched.tracing.values.values import Index, Value, as_read
from search_spaces import AutoschedError, Axis, Stage
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Expression
from search_spaces.workloads.expressions.walking import variables
from search_spaces.workloads.names import Names
from search_spaces.workloads.stages import MAX_EXTENT

# The axis of a result without dimensions.
ROW = "row"

# A coroutine that requests elements of other values one by one, and returns an element of its own.
Pulling = Generator[tuple[Value, Index], Expression, Expression]


class NotOneKernelError(Exception):
    """A value and its producers do not fit one kernel; with `stored` in memory they might.

    `needed`: no consumer of `stored` at these elements has a kernel unless it is in memory. `reached`: the values
    visited until then; storing any other value changes nothing.
    """

    def __init__(self, reason: str, stored: Value | None = None, *, needed: bool = False) -> None:
        super().__init__(reason)
        self.stored, self.needed = stored, needed
        self.reached: frozenset[Value] = frozenset()

    def having(self, reached: Iterable[Value]) -> NotOneKernelError:
        """The same error, with the visited values."""
        self.reached = frozenset(reached)
        return self


@dataclass(frozen=True)
class FusionLimits:
    """Fusion of products into one kernel, besides a single product and its epilogue.

    `computed`: a product's operands may be computed in its prologue, and there may be several products of one shape.
    `chained`: operands may be computed from products and reductions, and products may be reduced (back-to-back GEMM).
    """

    computed: bool = False
    chained: bool = False


@dataclass
class Pulled:
    """The state of a kernel while its elements are pulled from the values that are `stored`, with their strides.

    `cuts`: axes that are split in two, by the extent of the inner one. `output_axes`: those of the output with most
    elements, in order. `columns`: axes of reductions, one group per range, whichever dimensions these are; `folds`:
    number of these named so far. `prefix`: start of the names of new axes. `factors`: nested product operands being
    pulled; `contracted`: the axes that these products sum over; `summed`: extents of such axes. `products`: the stages
    of products, all of this `precision` or of any ("" until now). `reached`: visited values; `known`: their elements.
    """

    stored: Mapping[Value, tuple[int, ...]]
    cuts: Mapping[str, int]
    fusing: FusionLimits
    prefix: str = ""
    extents: dict[str, int] = field(default_factory=dict)
    output_axes: tuple[str, ...] = ()
    columns: list[tuple[str, ...]] = field(default_factory=list)
    folds: int = 0
    stages: list[Stage] = field(default_factory=list)
    precision: str = ""
    multiplies: bool = False
    factors: list[Value] = field(default_factory=list)
    contracted: list[tuple[str, ...]] = field(default_factory=list)
    summed: dict[str, int] = field(default_factory=dict)
    products: set[str] = field(default_factory=set)
    reached: set[Value] = field(default_factory=set)
    known: dict[tuple[Value, Index], Expression] = field(default_factory=dict)
    names: Names = field(default_factory=Names)
    reads: Reads = field(init=False)
    scans: ScannedStages = field(init=False)

    def __post_init__(self) -> None:
        self.scans = ScannedStages(self.stages, self.names)
        self.reads = Reads(self.extents, self.names)

    def dimension(self, axis: str, size: int) -> Affine:
        """The index along a dimension: an axis, or the axes it is split into; 0 where the size is 1."""
        if size == 1:
            return Affine()
        inner = self.cuts.get(axis)
        if inner is not None and size % inner == 0:
            return self.dimension(f"{axis}o", size // inner) * inner + self.dimension(f"{axis}i", inner)
        self.extend(axis, size)
        return axis_index(axis)

    def folded_dimension(self, size: int) -> Affine:
        """The index along a reduced dimension, by a new axis."""
        named, self.folds = self.folds, self.folds + 1
        return self.dimension(f"{self.prefix}r{named}", size)

    def extend(self, axis: str, size: int) -> None:
        """Set an axis's extent, once: a tensor is read by an axis over the whole extent."""
        known = self.extents.setdefault(axis, size)
        if known != size:
            raise AutoschedError(f"axis {axis} has the extents {known} and {size}; this is a defect of autosched")

    def unit(self, at: Affine | Expression, axis: str) -> Affine:
        """The index, with an axis of extent 1 where it has none."""
        if not isinstance(at, Affine):
            raise NotOneKernelError("an element of a product is looked up")
        if at.terms:
            return at
        self.extend(axis, 1)
        return at + axis_index(axis)

    def units(self, axes: Iterable[str]) -> tuple[str, ...]:
        """The axes of extent 1 that were added for products."""
        return tuple(a for a in axes if self.extents[a] == 1)

    def axes(self, names: Iterable[str]) -> tuple[Axis, ...]:
        """The axes of these names. Raises NotOneKernelError where an extent is beyond what kernels count."""
        found = tuple(Axis(n, self.extents[n]) for n in names)
        if long := next((x for x in found if x.extent > MAX_EXTENT), None):
            raise NotOneKernelError(f"an axis of {long.extent} positions; kernels count at most {MAX_EXTENT}")
        return found

    def ordered(self, names: Sequence[str]) -> tuple[str, ...]:
        """Rows before columns."""
        columns = dict.fromkeys(n for group in self.columns for n in group)
        return (*(n for n in names if n not in columns), *(n for n in columns if n in names))

    def like_output(self, names: Sequence[str]) -> tuple[str, ...]:
        """Axes of the output first, in its order."""
        return (*(a for a in self.output_axes if a in names), *(a for a in names if a not in self.output_axes))

    def access(self, stage: Stage, value: Value) -> Expression:
        """An element of a stage: a new one, unless another one computes the same."""
        same = next((s for s in self.stages if replace(s, name=stage.name) == stage), None)
        if same is None:
            same = replace(stage, name=self.names.fresh(stage.name))
            self.stages.append(same)
        return as_read(at_its_axes(same), value.dtype)

    def segment(self, ends: Value, position: Affine | Expression) -> Expression:
        """The segment that a position is in.

        Raises:
            NotOneKernelError: the ends do not lie in memory one after the other.
        """
        strided = memory_view(ends, self.stored)
        if strided is None or strided.strides != (1,):
            below = base_of(ends, self.stored)
            raise NotOneKernelError(f"{ends.name} is searched", None if below in self.stored else below, needed=True)
        return self.reads.segment(strided, position)

    def read(self, strided: MemoryView, index: Index, fill: float | int = 0) -> Expression:
        return self.reads.element(strided, index, fill, multiplied=bool(self.factors))


def axes_in(index: Index) -> tuple[str, ...]:
    """The axes of the index, in order."""
    forms = (at for at in index if isinstance(at, Affine))
    found = [v for form in forms for v, _ in sorted(form.terms, key=lambda term: -term[1])]
    inner = [v for at in index if not isinstance(at, Affine) for v in sorted(variables(at))]
    return tuple(dict.fromkeys([*found, *inner]))
