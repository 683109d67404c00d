"""Rows of windows: columns and channels of a window as one summed axis, where a pixel is shorter than a vector or dot.

Before:  sum over r, s, c of x[n, 2*p + r - 3, 2*q + s - 3, c] * w[f, r, s, c]        3 channels: 6 bytes
After:   x_rows[n, h, 4*w + c] = x[n, h, w, c];  w_rows[f, r, 4*s + c] = w[f, r, s, c];  both 0 for c = 3
         sum over r, t of x_rows[n, 2*p + r - 3, 8*q + t - 12] * w_rows[f, r, t]                 28 values of t

The channels of a pixel are padded to a power of two, so that a row of the window is one of aligned vectors. It has no
other pixels, which might be infinite. (CUTLASS has iterators for "few channels", and leaves the padding to its users.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from search_spaces.devices.architectures import TMA
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.lowering import start_of, workspace_name
from search_spaces.programs.statements import Load, Store
from search_spaces.programs.tile_program import Buffer, Kernel, Launch
from search_spaces.programs.tiles import Flat, Slice, Tile
from search_spaces.schedules.knobs import padded
from search_spaces.workloads.dtypes import dtype, is_integer
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Apply, Expression
from search_spaces.workloads.expressions.walking import accesses, rewritten
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis, Reduction, Tensor, Workload

# Positions of a program's copy: along the dimension before rows, and along a row.
_TILE = (8, 256)
_WARPS = 4
# Depth of the shortest dots, those of tf32: a shorter pixel of float32 would be padded to it, though it is a vector.
_DEPTH = 8


@dataclass(frozen=True)
class RowCopy:
    """A copy of a tensor whose last dimension joins two of the tensor's: `of` has `channels` positions for each of it.

    `others`: the tensor's other dimensions, in the order of the copy's.
    """

    workload: Workload
    tensor: Tensor
    others: tuple[int, ...]
    of: int
    channel: int
    channels: int

    @property
    def constant(self) -> str:
        """The tensor, if it is copied once."""
        return self.tensor.name if self.tensor.constant else ""

    @property
    def length(self) -> int:
        return self.tensor.shape[self.of] * self.channels

    @property
    def made(self) -> Tensor:
        shape = (*(self.tensor.shape[d] for d in self.others), self.length)
        name = workspace_name(self.workload, f"{self.tensor.name}_rows")
        return Tensor(name, shape, self.tensor.dtype)

    @property
    def workspace(self) -> Buffer:
        made = self.made
        return Buffer(made.name, made.shape, made.dtype, "workspace", made.strides)

    @property
    def kernel(self) -> Kernel:
        """Tiles of rows are loaded by digits of the position in a row, and stored as they are."""
        *outer, last = self.others or (-1,)
        columns = min(padded(self.length), _TILE[1])
        begin = start_of(("t.0", columns))
        place = {d: Slice(start_of((f"d{d}.0", 1))) for d in outer}
        counts = {d: self.tensor.shape[d] for d in outer}
        sides = {"t": columns}
        if self.others:
            rows = min(padded(self.tensor.shape[last]), _TILE[0])
            place[last] = Slice(start_of((f"d{last}.0", rows)), rows, "row")
            counts[last] = -(-self.tensor.shape[last] // rows)
            sides = {"row": rows, "t": columns}
        place[self.of] = Slice(Affine(), columns, "t", flat=Flat(begin, self.channels))
        place[self.channel] = Slice(Affine(), columns, "t", flat=Flat(begin, 1, self.channels))
        piece = Tile("piece", tuple(sides), tuple(sides.values()), self.tensor.dtype)
        grid = (*(GridAxis(f"d{d}.0", n) for d, n in counts.items()), GridAxis("t.0", -(-self.length // columns)))
        slices = tuple(place[d] for d in range(len(self.tensor.shape)))
        body = (
            Load(piece, self.tensor.name, slices, 0.0, guarded=True),
            Store(self.made.name, (*(place[d] for d in self.others), Slice(begin, columns, "t")), piece.name),
        )
        name = f"{self.workload.name}_rows_{self.tensor.name}"
        return Kernel(name, Grid(grid), body, Launch(num_warps=_WARPS), auxiliary=True)


def window_rows(workload: Workload) -> tuple[Workload, tuple[RowCopy, RowCopy]] | None:
    """The workload of rows of windows, and the copies that it reads; None where it has no windows of short pixels."""
    sums = [s for s in workload.stages if s.reduction]
    match [s.expression for s in sums]:
        case [Apply("mul", (Access() as a, Access() as b))]:
            pass
        case _:
            return None
    reduction = sums[0].reduction
    assert reduction is not None
    read_once = sum(x.tensor in (a.tensor, b.tensor) for s in workload.stages for x in accesses(s.expression)) == 2
    inputs = {t.name: t for t in workload.inputs}
    if not read_once or not {a.tensor, b.tensor} <= {*inputs}:
        return None
    summed = {x.name: x.extent for x in reduction.axes}
    for image, weight in ((a, b), (b, a)):
        if (found := _rows(workload, inputs, image, weight, summed)) is not None:
            return found
    return None


def _rows(
    workload: Workload, inputs: Mapping[str, Tensor], image: Access, weight: Access, summed: Mapping[str, int]
) -> tuple[Workload, tuple[RowCopy, RowCopy]] | None:
    own, of = inputs[image.tensor], inputs[weight.tensor]
    aligned = TMA.vector(dtype(own.dtype).bytes)
    plain = {i.axis: d for d, i in enumerate(image.index) if i.is_axis and i.axis in summed}
    weights = {i.axis: d for d, i in enumerate(weight.index) if i.is_axis and of.shape[d] == summed.get(i.axis)}
    short = {
        x: d
        for x, d in plain.items()
        if own.shape[d] == summed[x] and padded(summed[x]) < max(aligned, _DEPTH) and x in weights
    }
    windows = [(d, x) for d, i in enumerate(image.index) if len(i.terms) == 2 for x in i.axes if x in weights]
    if image.fill or weight.fill is not None or not short or not windows:
        return None
    # Columns are the innermost of the windows.
    channel, (columns, tap) = min(short, key=lambda x: short[x]), windows[-1]
    index = image.index[columns]
    apart = [i for d, i in enumerate(image.index) if d not in (columns, short[channel])]
    apart += [i for d, i in enumerate(weight.index) if d not in (weights[tap], weights[channel])]
    elsewhere = index.step(channel) or any(i.step(x) for i in apart for x in (tap, channel))
    extents = {x.name: x.extent for s in workload.stages for x in s.loops}
    # Of a gradient to weights the sum is over pixels, which are many, and a window moves along the taps.
    many = any(extents[x] < extents[tap] for x in index.axes)
    if index.step(tap) != 1 or elsewhere or many:
        return None
    pixel = padded(summed[channel])
    names = Names({x.name for s in workload.stages for x in s.loops})
    t = Axis(names.fresh("t"), summed[tap] * pixel)
    copy = RowCopy(workload, own, _others(own, columns, short[channel]), columns, short[channel], pixel)
    taps, of_each = weights[tap], weights[channel]
    turned = RowCopy(workload, of, _others(of, taps, of_each), taps, of_each, pixel)
    along = Affine.of(
        *((x, step * pixel) for x, step in index.terms if x != tap), (t.name, 1), offset=index.offset * pixel
    )
    zero = 0 if is_integer(own.dtype) else 0.0
    reads = {
        image.tensor: Access(copy.made.name, (*(image.index[d] for d in copy.others), along), zero),
        weight.tensor: Access(turned.made.name, (*(weight.index[d] for d in turned.others), axis_index(t.name))),
    }

    def change(e: Expression) -> Expression | None:
        return reads.get(e.tensor) if isinstance(e, Access) else None

    def over(reduction: Reduction | None) -> Reduction | None:
        if reduction is None:
            return None
        return replace(reduction, axes=(*(x for x in reduction.axes if x.name not in (tap, channel)), t))

    made = {c.tensor.name: c.made for c in (copy, turned)}
    stages = tuple(
        replace(s, expression=rewritten(s.expression, change), reduction=over(s.reduction)) for s in workload.stages
    )
    changed = replace(workload, inputs=tuple(made.get(x.name, x) for x in workload.inputs), stages=stages)
    return changed, (copy, turned)


def _others(tensor: Tensor, *joined: int) -> tuple[int, ...]:
    """The dimensions but those that are joined, in the order of memory."""
    rest = (d for d in range(len(tensor.shape)) if d not in joined)
    return tuple(sorted(rest, key=lambda d: -tensor.effective_strides[d]))
