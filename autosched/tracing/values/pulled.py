"""A kernel while elements are pulled from its output downwards: its axes, stages and reads, and why it is none."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autosched.tracing.values.reads import Reads, at_its_axes
from autosched.tracing.values.scanned import ScannedStages
from autosched.tracing.values.tensor_reads import Lying
from autosched.tracing.values.values import Index, Value, as_read
from search_spaces import AutoschedError, Axis, Stage
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Expression
from search_spaces.workloads.expressions.walking import variables
from search_spaces.workloads.names import Names
from search_spaces.workloads.stages import MAX_EXTENT

# The axis of a result without dimensions.
ROW = "row"

# What asks for elements of other values, one by one, and ends with an element of its own.
Pulling = Generator[tuple[Value, Index], Expression, Expression]


class NotOneKernelError(Exception):
    """A value and what it is computed from do not fit one kernel; with `stored` in memory they might.

    `needed`: nothing that is computed from `stored` like that has a kernel unless that is in memory. `reached`: what
    was looked at until then; storing anything else changes nothing.
    """

    def __init__(self, reason: str, stored: Value | None = None, *, needed: bool = False) -> None:
        super().__init__(reason)
        self.stored, self.needed = stored, needed
        self.reached: frozenset[Value] = frozenset()

    def having(self, reached: Iterable[Value]) -> NotOneKernelError:
        """The same, with what was looked at."""
        self.reached = frozenset(reached)
        return self


@dataclass(frozen=True)
class Fusing:
    """What of products one kernel may hold, beside what it does with one alone.

    `computed`: what is multiplied may be computed on the way, and there may be several products of one shape.
    `chained`: what is multiplied may be computed from products and folds, and products may be folded.
    """

    computed: bool = False
    chained: bool = False


@dataclass
class Pulled:
    """What is known of a kernel while its elements are pulled from the values that are `stored`, with their strides.

    `cuts`: axes that are two, by the positions of the inner one. `output_axes` are those of the output that has most
    elements, in order; `columns` those along what is reduced, one range after the other, whichever dimensions these
    are; `folds`: how many of these were given names. `prefix`: what the names of axes begin with that it makes itself.
    `factors`: what is pulled for products at the moment, one within the other, and `walks` the axes that these sum
    over; `summed`: how long such axes are. `products`: the stages of products. `reached`: what was looked at; `known`:
    at which elements.
    """

    stored: Mapping[Value, tuple[int, ...]]
    cuts: Mapping[str, int]
    fusing: Fusing
    prefix: str = ""
    extents: dict[str, int] = field(default_factory=dict)
    output_axes: tuple[str, ...] = ()
    columns: list[tuple[str, ...]] = field(default_factory=list)
    folds: int = 0
    stages: list[Stage] = field(default_factory=list)
    precision: str = "ieee"
    multiplies: bool = False
    factors: list[Value] = field(default_factory=list)
    walks: list[tuple[str, ...]] = field(default_factory=list)
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
        """The index along a dimension: an axis, or the axes it is cut into; 0 where there is only one index."""
        if size == 1:
            return Affine()
        inner = self.cuts.get(axis)
        if inner is not None and size % inner == 0:
            return self.dimension(f"{axis}o", size // inner) * inner + self.dimension(f"{axis}i", inner)
        self.extend(axis, size)
        return axis_index(axis)

    def folded_dimension(self, size: int) -> Affine:
        """The index along a dimension that is folded, by an axis of its own."""
        named, self.folds = self.folds, self.folds + 1
        return self.dimension(f"{self.prefix}r{named}", size)

    def extend(self, axis: str, size: int) -> None:
        """Give an axis its extent, which it keeps: what is read by an axis is read as far as it goes."""
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
        """Those of the axes that products were given for dimensions of size 1."""
        return tuple(a for a in axes if self.extents[a] == 1)

    def axes(self, names: Iterable[str]) -> tuple[Axis, ...]:
        """Raises NotOneKernelError where kernels do not count one of them."""
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
        """An element of a stage, which is a new one unless another one computes the same."""
        same = next((s for s in self.stages if replace(s, name=stage.name) == stage), None)
        if same is None:
            same = replace(stage, name=self.names.fresh(stage.name))
            self.stages.append(same)
        return as_read(at_its_axes(same), value.dtype)

    def read(self, lies: Lying, index: Index, fill: float | int = 0) -> Expression:
        return self.reads.element(lies, index, fill, multiplied=bool(self.factors))


def axes_in(index: Index) -> tuple[str, ...]:
    """The axes of the index, in order."""
    forms = (at for at in index if isinstance(at, Affine))
    found = [v for form in forms for v, _ in sorted(form.terms, key=lambda term: -term[1])]
    inner = [v for at in index if not isinstance(at, Affine) for v in sorted(variables(at))]
    return tuple(dict.fromkeys([*found, *inner]))
