"""The statements of a kernel's body, and the tiles that each reads and produces."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from search_spaces.programs.tiles import Bound, Digits, Panels, Slice, Tile, sliced
from search_spaces.workloads.dtypes import is_float
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.operators import LARGEST_INTEGER, LEAST_INTEGER


@dataclass(frozen=True, slots=True)
class Load:
    """`dst = buffer[slices]`; `dst` has the axes of the slices, and those by which they are skewed.

    `panels`: copy into this layout (CPU). Without it a CPU backend may read in place. `via`: addressing on a GPU;
    im2col descriptors copy positions of several dimensions (`im2col`).
    `guarded`: elements outside the buffer are used, and are `fill`. Otherwise only unused elements are outside; those
    of a skewed slice may be anything.
    """

    dst: Tile
    buffer: str
    slices: tuple[Slice, ...]
    fill: float | int = 0.0
    via: Literal["pointer", "descriptor", "im2col"] = "pointer"
    panels: Panels | None = None
    eviction: Literal["", "evict_first", "evict_last"] = ""
    guarded: bool = False


@dataclass(frozen=True, slots=True)
class Gather:
    """`dst[…] = buffer[…, index tile[…], …]`: a load with data as indices of at least one dimension.

    `index` has, per dimension of the buffer, a slice or the name of a tile whose values are the indices. The axes of
    `dst` are those of slices and index tiles, broadcast by name. If an index or a slice is outside of its dimension,
    the element is `fill`; without one it is NaN, 0 in a buffer of integers or booleans.
    """

    dst: Tile
    buffer: str
    index: tuple[Slice | str, ...]
    fill: float | int | None = None

    def outside(self, element: str) -> float | int:
        """Value of elements outside a buffer of this element type."""
        if self.fill is not None:
            return self.fill
        return math.nan if is_float(element) else 0


@dataclass(frozen=True, slots=True)
class Position:
    """`dst` = the positions of the piece along its axis; or without an axis, its single index.

    In float32, or in int64 if `dst` is.
    """

    dst: Tile
    piece: Slice


@dataclass(frozen=True, slots=True)
class View:
    """`dst = src[slices]`, a part of a tile without a copy: a slice for each axis of `src`."""

    dst: Tile
    src: str
    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class Fill:
    """`dst = value` everywhere."""

    dst: Tile
    value: float | int


@dataclass(frozen=True, slots=True)
class Dot:
    """`dst += sum over axis of a * b`, accumulated in float32, or in int32 if `dst` is: the operands are then int8.

    `dst` has the other axis of `a` and the other axis of `b`, in either order of the axes in the operands; before them
    come the axes that all three have, a batch of independent products. `unroll`: reduction steps per iteration of the
    innermost loop; `prefetch_b`: prefetch distance in rows of `b`, each as long as the tile is wide: the next steps of
    a packed operand, the next panels of one that is read in place (both CPU). `precision`: see `workload.Workload`.
    `from_memory`: every lane multiplies what it loaded, the positions along `axis` in an order that suits memory; the
    batch is divided among warps (GPU).
    """

    dst: Tile
    a: str
    b: str
    axis: str
    precision: Literal["ieee", "tf32", "fast"] = "ieee"
    unroll: int = 1
    prefetch_b: int = 0
    from_memory: bool = False


# Element types of comparisons.
Compared = Literal["float32", "int64"]


@dataclass(frozen=True, slots=True)
class Map:
    """`dst = operator(arguments)` at every point, arguments broadcast by axis name; a number is a constant.

    `operator` is one of `operators.OPERATORS` except conversions, or "cast" (the one argument to `dst.dtype`: rounded,
    cut towards 0, or to its lower bits). Computed in float32, for all types of arguments; in int32, int64 or float64 if
    `dst` is, except for the condition of "where"; `compared`: the type of a comparison.
    """

    dst: Tile
    operator: str
    arguments: tuple[str | float | int, ...]
    compared: Compared = "float32"

    @property
    def computed(self) -> str:
        """The element type that the operator computes in."""
        return self.dst.dtype if self.dst.dtype in ("int32", "int64", "float64") else self.compared


_IDENTITIES: Mapping[str, float] = {"sum": 0.0, "max": -math.inf, "min": math.inf, "prod": 1.0}
_INTEGER_IDENTITIES: Mapping[str, int] = {"sum": 0, "max": LEAST_INTEGER, "min": LARGEST_INTEGER, "prod": 1}


def fold_identity(operator: str, integral: bool) -> float | int:
    """Initial value that leaves a fold unchanged, of floats or of integers."""
    return _INTEGER_IDENTITIES[operator] if integral else _IDENTITIES[operator]


@dataclass(frozen=True, slots=True)
class Reduce:
    """`dst = fold of src along axis`, in the type of `dst`, without positions outside `bound`."""

    dst: Tile
    src: str
    axis: str
    operator: Literal["sum", "max", "min", "prod"]
    bound: Bound | None = None


@dataclass(frozen=True, slots=True)
class Regroup:
    """`dst = src`, with several axes in place of `axis`, of which the last has its neighbours.

    Position p along an axis of 2 * 32 * 8 becomes p // 256, p // 8 % 32 and p % 8.
    """

    dst: Tile
    src: str
    axis: str


@dataclass(frozen=True, slots=True)
class Combination:
    """An associative operator on tuples of values: `body` computes the tiles `results` from `left` and `right`.

    None of these tiles has axes: they stand for elements.
    """

    left: tuple[Tile, ...]
    right: tuple[Tile, ...]
    body: tuple[Map, ...]
    results: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """`dsts = srcs`, each element combined with all before it along the axis; with `reverse`, with all after it.

    The first one in this order is the left argument. The combination is associative.
    """

    dsts: tuple[Tile, ...]
    srcs: tuple[str, ...]
    axis: str
    combine: Combination
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class Split:
    """`first, second = the two halves of src along axis` (epilogue sub-tiling)."""

    first: Tile
    second: Tile
    src: str
    axis: str


@dataclass(frozen=True, slots=True)
class Deinterleave:
    """`dst[p] = every len(dst)-th position of src along axis, from p on`: all `dst` are of one shape."""

    dst: tuple[Tile, ...]
    src: str
    axis: str


@dataclass(frozen=True, slots=True)
class Interleave:
    """Alternating positions of the tiles `src` along axis, as one tile: the inverse of `Deinterleave`.

    `run`: neighbours that stay together; with all of a tile's, the tiles follow one another.
    """

    dst: Tile
    src: tuple[str, ...]
    axis: str
    run: int = 1


@dataclass(frozen=True, slots=True)
class Store:
    """`buffer[slices] = src`, rounded to the buffer's element type; `atomic`: added to the elements there.

    `streaming`: bypass the caches (CPU), evict first (GPU). `where`: the name of a tile; elements where that is 0 are
    not written.
    """

    buffer: str
    slices: tuple[Slice, ...]
    src: str
    via: Literal["pointer", "descriptor"] = "pointer"
    atomic: bool = False
    streaming: bool = False
    where: str = ""

    @property
    def axes(self) -> tuple[str, ...]:
        """The tile's axes, in the order of the dimensions that they run along."""
        return tuple(sliced(self.slices))


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Load `buffer[slices]` into the caches, before a store to it; `tile` has the axes and the shape."""

    tile: Tile
    buffer: str
    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class For:
    """`body` for each value of `variable` from 0 below `extent` that is within `bound`.

    `pipeline_stages`: stages of software pipelining (GPU); 0: the backend's choice. `flatten`: fuse this loop with the
    loop over tiles around it, so that operands of the next tile are loaded while this one ends (GPU).

    `useful`: iterations outside of one of these bounds have no effect and may be skipped; if the start of a bound
    decreases with the variable, the first iterations are outside. Consecutive loops may divide an iteration space: this
    one has the iterations within all of `until`, except those within all of one of the groups of `since`; the starts of
    these bounds increase with the variable. `marks`: the name of a 1-D tile, a block mask; iteration i is skipped if
    element i is 0. It may be longer than the loop.

    `digits`: variables of the fused loops, if this is several loops in one.
    """

    variable: str
    extent: int
    body: tuple[Statement, ...]
    pipeline_stages: int = 0
    flatten: bool = False
    bound: Bound | None = None
    useful: tuple[Bound, ...] = ()
    until: tuple[Bound, ...] = ()
    since: tuple[tuple[Bound, ...], ...] = ()
    marks: str = ""
    digits: Digits | None = None

    def along(self, bound: Bound) -> tuple[int, Affine]:
        """Growth of a bound's start per iteration, and its value at the first iteration."""
        step = dict(bound.start.terms).get(self.variable, 0)
        rest = tuple(t for t in bound.start.terms if t[0] != self.variable)
        return step, Affine(rest, bound.start.offset)


@dataclass(frozen=True, slots=True)
class If:
    """`then` if the variable has the value, else `otherwise`."""

    variable: str
    value: int
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True)
class Let:
    """`variable = src`, an integer tile without axes; affine forms after it in the same body may use the variable.

    Values outside of 0 … extent - 1 become the nearest of these, so that bounds hold whatever the data is. `usual`: the
    mean over the grid for which costs are counted; it changes no result.
    """

    variable: str
    extent: int
    src: str
    usual: float = 0


Moving = Load | Gather | Position | View | Fill | Split | Deinterleave | Interleave | Store | Prefetch
Statement = Moving | Dot | Map | Reduce | Regroup | Scan | For | If | Let


def statements(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """Every statement, outer before inner, in order."""
    for s in body:
        yield s
        if isinstance(s, For | If):
            for inner in children(s):
                yield from statements(inner)


def mapped(body: Sequence[Statement], change: Callable[[Statement], Statement]) -> tuple[Statement, ...]:
    """The body with every statement changed, inner ones first."""

    def within(s: Statement) -> Statement:
        match s:
            case For(body=body):
                inner = mapped(body, change)
                return s if inner is body else replace(s, body=inner)
            case If(then=then, otherwise=otherwise):
                return replace(s, then=mapped(then, change), otherwise=mapped(otherwise, change))
            case _:
                return s

    made = tuple([change(within(s)) for s in body])
    # Most decisions leave most bodies as they are, and a search lowers thousands.
    return body if isinstance(body, tuple) and all(map(operator.is_, made, body)) else made


def children(statement: Statement) -> tuple[tuple[Statement, ...], ...]:
    """The bodies nested in a statement."""
    match statement:
        case For(body=body):
            return (body,)
        case If(then=then, otherwise=otherwise):
            return (then, otherwise)
        case _:
            return ()


def produced(statement: Statement) -> tuple[Tile, ...]:
    """The tiles that a statement writes (not those of its nested bodies)."""
    match statement:
        case Load(dst=dst) | Gather(dst=dst) | Position(dst=dst) | View(dst=dst) | Fill(dst=dst):
            return (dst,)
        case Dot(dst=dst) | Map(dst=dst) | Reduce(dst=dst) | Regroup(dst=dst):
            return (dst,)
        case Split(first=first, second=second):
            return (first, second)
        case Scan(dsts=dsts):
            return dsts
        case Deinterleave(dst=dst):
            return dst
        case Interleave(dst=dst):
            return (dst,)
        case _:
            return ()


def read(statement: Statement) -> tuple[str, ...]:
    """The names of the tiles that a statement reads."""
    match statement:
        case Map(arguments=arguments):
            return tuple(a for a in arguments if isinstance(a, str))
        case Gather(index=index):
            return tuple(i for i in index if isinstance(i, str))
        case Dot(dst=dst, a=a, b=b):
            return (dst.name, a, b)
        case Reduce(src=src) | Regroup(src=src) | Split(src=src) | Deinterleave(src=src) | Let(src=src):
            return (src,)
        case Store(src=src, where=where) if where:
            return (src, where)
        case Store(src=src) | View(src=src):
            return (src,)
        case Scan(srcs=srcs):
            return srcs
        case For(marks=marks) if marks:
            return (marks,)
        case Interleave(src=sources):
            return sources
        case _:
            return ()
