"""The tile program: the one form between schedules and printed kernels.

Sketch rules lower schedules to tile programs; backends print them (Triton, LLVM IR); the NumPy interpreter executes
them; cost models read features off them. A program is one or more kernels run in order. A kernel is a grid of
programs, each running the same short body of statements on tiles:

    kernel matmul: grid m.0 in 4, n.0 in 4
      acc: (m 128, n 128) float32 = 0
      for k.0 in 8:
        a_tile = load a[m.0*128 : +128, k.0*64 : +64]
        b_tile = load b[k.0*64 : +64, n.0*128 : +128]
        acc += dot(a_tile, b_tile) over k
      store out[m.0*128 : +128, n.0*128 : +128] = acc

A tile is a small dense array with *named* axes; statements broadcast by axis name, so no statement carries axis
numbers. A statement that produces an existing tile name assigns to it (a loop-carried tile). Grid and loop variables
are integers from 0; slices start at affine forms of them. Loads outside the buffer yield `fill`, stores outside are
dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from search_spaces.programs.grid import Grid
from search_spaces.workloads.dtypes import dtype, is_float
from search_spaces.workloads.expression import LARGEST_INTEGER, LEAST_INTEGER, Affine
from search_spaces.workloads.strides import dense_strides, distinct_elements, span


@dataclass(frozen=True, slots=True)
class Buffer:
    """An array in device memory: dense and row-major, or with `declared_strides` (see `workload.Tensor`).

    `workspace` buffers are allocated by the launcher, dense, and carry data from one kernel of a program to the next.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Literal["input", "output", "workspace"]
    declared_strides: tuple[int, ...] | None = None

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Of the elements themselves, those that share memory counted once; without what lies between them."""
        return distinct_elements(self.shape, self.strides) * dtype(self.dtype).bytes

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours, per dimension."""
        return dense_strides(self.shape) if self.declared_strides is None else self.declared_strides

    @property
    def span(self) -> int:
        """How many elements of memory lie from the first element to the last, both included."""
        return span(self.shape, self.strides)


@dataclass(frozen=True, slots=True)
class Tile:
    """Name, named axes, extents and element type of a tile. A tile without axes is a scalar."""

    name: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * dtype(self.dtype).bytes

    def extent(self, axis: str) -> int:
        return self.shape[self.axes.index(axis)]

    def __str__(self) -> str:
        dims = ", ".join(f"{a} {e}" for a, e in zip(self.axes, self.shape, strict=True))
        return f"{self.name}: ({dims}) {self.dtype}"


@dataclass(frozen=True, slots=True)
class Slice:
    """One dimension of a tile's place in a buffer (or in another tile).

    `extent=None` picks a single index, and the tile does not have that axis. `clamped`: positions beyond the end of the
    buffer read its last one instead of a fill value, so that no load needs a mask; for what nobody uses. `step`: from
    one position to the next, which may be negative.
    """

    start: Affine
    extent: int | None = None
    clamped: bool = False
    step: int = 1

    def __str__(self) -> str:
        clamped = " clamped" if self.clamped else ""
        step = "" if self.step == 1 else f" step {self.step}"
        return f"{self.start}{clamped}" if self.extent is None else f"{self.start} : +{self.extent}{step}{clamped}"


@dataclass(frozen=True, slots=True)
class Bound:
    """The condition `start < size`; for an axis of a tile, `start + position < size`."""

    start: Affine
    size: int


@dataclass(frozen=True, slots=True)
class Panels:
    """Staging layout: the tile is copied so that every `width` neighbours along `axis` lie together.

    Before: element (i, k) of an (m 64, k 32) tile at i*32 + k.
    After `Panels("m", 8)`: at (i // 8)*(32*8) + k*8 + i % 8. Also called packing (GotoBLAS, section 4).
    With `interleaved=False` the 8 rows of a panel stay rows, one after the other with some padding: no transposition,
    but no two rows in the same cache set either.
    """

    axis: str
    width: int
    interleaved: bool = True


@dataclass(frozen=True, slots=True)
class Load:
    """`dst = buffer[slices]`; the axes of `dst` are the sliced dimensions, in the buffer's order.

    `panels`: copy into this layout (CPU). Without it a CPU backend may read in place. `via`: how a GPU addresses it.
    `guarded`: what is outside the buffer is used, and is `fill`. Otherwise only what nobody uses is outside.
    """

    dst: Tile
    buffer: str
    slices: tuple[Slice, ...]
    fill: float | int = 0.0
    via: Literal["pointer", "descriptor"] = "pointer"
    panels: Panels | None = None
    eviction: Literal["", "evict_first", "evict_last"] = ""
    guarded: bool = False


@dataclass(frozen=True, slots=True)
class Gather:
    """`dst[…] = buffer[…, index tile[…], …]`: a load of which at least one dimension is looked up.

    `index` has, per dimension of the buffer, a slice or the name of a tile whose values are the indices. The axes of
    `dst` are those of slices and index tiles, broadcast by name; `axes` are those of the slices that have an extent, in
    order. Where an index is none of its dimension, or a slice is outside the buffer, the element is `fill`; without one
    it is NaN, 0 in a buffer of integers or booleans.
    """

    dst: Tile
    buffer: str
    index: tuple[Slice | str, ...]
    axes: tuple[str, ...] = ()
    fill: float | int | None = None

    def outside(self, element: str) -> float | int:
        """What an element is that is in no buffer of this element type."""
        if self.fill is not None:
            return self.fill
        return math.nan if is_float(element) else 0


@dataclass(frozen=True, slots=True)
class Position:
    """`dst` = the positions of the piece along its one axis; or without an axis, where the piece picks one index.

    In float32, or in int64 where `dst` is.
    """

    dst: Tile
    piece: Slice


@dataclass(frozen=True, slots=True)
class View:
    """`dst = src[slices]`, a part of a tile, not copied."""

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
    """`dst += sum over axis of a * b`, accumulated in float32, or in int32 where `dst` is: the operands are then int8.

    `dst` has the other axis of `a` and the other axis of `b`, whichever way round the operands store them.
    `unroll`: reduction steps per iteration of the innermost loop; `prefetch_b`: how many rows of `b`, each as long as
    the tile is wide, are prefetched ahead of the one in use: the next steps of a packed operand, the next panels of one
    that is read in place (both CPU). `precision`: see `workload.Workload`.
    """

    dst: Tile
    a: str
    b: str
    axis: str
    precision: Literal["ieee", "tf32", "fast"] = "ieee"
    unroll: int = 1
    prefetch_b: int = 0


# What comparisons are made in.
Compared = Literal["float32", "int64"]


@dataclass(frozen=True, slots=True)
class Map:
    """`dst = operator(arguments)` at every point, arguments broadcast by axis name; a number is a constant.

    `operator` is one of `expression.OPERATORS` but those that convert, or "cast" (the one argument to `dst.dtype`:
    rounded, cut towards 0, or to its lower bits). Computed in float32, whatever the arguments are; in int32, int64 or
    float64 where `dst` is, but for the condition of "where"; `compared`: what a comparison is made in.
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


def identity(operator: str, integral: bool) -> float | int:
    """What leaves a fold unchanged, of numbers or of integers."""
    return _INTEGER_IDENTITIES[operator] if integral else _IDENTITIES[operator]


@dataclass(frozen=True, slots=True)
class Reduce:
    """`dst = fold of src along axis`, in the type of `dst`; positions outside `bound` are left out."""

    dst: Tile
    src: str
    axis: str
    operator: Literal["sum", "max", "min", "prod"]
    bound: Bound | None = None


@dataclass(frozen=True, slots=True)
class Combination:
    """Two values of several tiles as one: `body` makes the tiles called `results` of `left` and `right`.

    All of these have no axes here: they stand for elements.
    """

    left: tuple[Tile, ...]
    right: tuple[Tile, ...]
    body: tuple[Map, ...]
    results: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """`dsts = srcs`, each element combined with all that come before it along the axis; after it, with `reverse`.

    What comes first in this order stands on the left. The combination is associative.
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
class Store:
    """`buffer[slices] = src`, rounded to the buffer's dtype; `atomic`: added to what is there.

    `streaming`: bypass the caches (CPU), evict first (GPU). `axes`: the tile's axes in the order of the dimensions that
    `slices` slices, where the tile has them in another one (GPU).
    """

    buffer: str
    slices: tuple[Slice, ...]
    src: str
    via: Literal["pointer", "descriptor"] = "pointer"
    atomic: bool = False
    streaming: bool = False
    axes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Bring `buffer[slices]` into the caches, to be written soon; the tile would have these axes and this shape."""

    tile: Tile
    buffer: str
    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class For:
    """`body` once for each value of `variable` from 0 below `extent` that is within `bound`.

    `pipeline_stages`: loads of later iterations in flight while earlier ones compute (GPU), 0 leaves it to the backend.
    `flatten`: one loop is made of this one and the loop over tiles around it, so that operands of the next tile are
    loaded while this one ends (GPU). `useful`: an iteration outside of one of these changes nothing, and may be left
    out; where the variable makes the start smaller, the first iterations are outside.
    """

    variable: str
    extent: int
    body: tuple[Statement, ...]
    pipeline_stages: int = 0
    flatten: bool = False
    bound: Bound | None = None
    useful: tuple[Bound, ...] = ()

    def along(self, bound: Bound) -> tuple[int, Affine]:
        """How much the start of a bound grows with the variable, and what it is at the first iteration."""
        step = dict(bound.start.terms).get(self.variable, 0)
        rest = tuple(t for t in bound.start.terms if t[0] != self.variable)
        return step, Affine(rest, bound.start.offset)


@dataclass(frozen=True, slots=True)
class If:
    """`then` when the variable has the value, `otherwise` when not."""

    variable: str
    value: int
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...] = ()


Statement = Load | Gather | Position | View | Fill | Dot | Map | Reduce | Scan | Split | Store | Prefetch | For | If


@dataclass(frozen=True, slots=True)
class Launch:
    """How a kernel is launched or generated; a backend reads the fields of its device.

    GPU: `num_warps`, `num_stages` (default pipeline depth), `num_ctas` (cluster size), `max_registers` (0: no cap),
    `producer_warps` (warps beside `num_warps` that do nothing but bring operands; 0: the compiler interleaves that);
    with them, `alternating` halves of the warps compute every other tile, instead of half of every tile.
    CPU: `lanes` (elements per vector), `vectors` (vectors per step of an element-wise loop), `prefetch_bytes` (how far
    ahead of such a loop its operands are brought into the caches).
    """

    num_warps: int = 4
    num_stages: int = 1
    num_ctas: int = 1
    max_registers: int = 0
    producer_warps: int = 0
    alternating: bool = False
    lanes: int = 1
    vectors: int = 1
    prefetch_bytes: int = 0


@dataclass(frozen=True)
class Kernel:
    """A grid of programs with one body. A statement may use any tile produced before it in the same program."""

    name: str
    grid: Grid
    body: tuple[Statement, ...]
    launch: Launch = Launch()


@dataclass(frozen=True)
class TileProgram:
    """Kernels run one after the other over the same buffers.

    Buffers are in calling order: inputs, then the outputs, then workspaces. Buffers in `zeroed` are set to zero first.
    """

    name: str
    buffers: tuple[Buffer, ...]
    kernels: tuple[Kernel, ...]
    zeroed: tuple[str, ...] = ()

    def buffer(self, name: str) -> Buffer:
        return next(b for b in self.buffers if b.name == name)


def statements(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """Every statement, outer before inner, in order."""
    for s in body:
        yield s
        if isinstance(s, For | If):
            for inner in children(s):
                yield from statements(inner)


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
        case Dot(dst=dst) | Map(dst=dst) | Reduce(dst=dst):
            return (dst,)
        case Split(first=first, second=second):
            return (first, second)
        case Scan(dsts=dsts):
            return dsts
        case _:
            return ()


def loop_extents(kernel: Kernel) -> dict[str, int]:
    """Extent of every grid and loop variable of a kernel."""
    extents = {a.variable: a.extent for a in kernel.grid.axes}
    extents.update((s.variable, s.extent) for s in statements(kernel.body) if isinstance(s, For))
    return extents


def may_exceed(piece: Slice, size: int, extents: Mapping[str, int]) -> bool:
    """Whether the slice can reach beyond a dimension of `size`: whether a backend must mask it."""
    return reach(piece, extents)[1] >= size


def may_precede(piece: Slice, extents: Mapping[str, int]) -> bool:
    """Whether the slice can begin, or with a negative step end, before a dimension: whether a backend must mask it."""
    return reach(piece, extents)[0] < 0


def reach(piece: Slice, extents: Mapping[str, int]) -> tuple[int, int]:
    """The smallest and the largest index that the slice can have."""
    along = piece.step * ((piece.extent or 1) - 1)
    return piece.start.minimum(extents) + min(0, along), piece.start.maximum(extents) + max(0, along)
