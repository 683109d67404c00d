"""From expressions to tile statements: the writer of kernel bodies for all sketches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from search_spaces.programs import statements
from search_spaces.programs.neighbours import Neighbours
from search_spaces.programs.selecting import SelectedRead, Selections, slice_chosen
from search_spaces.programs.statements import Compared, Fill, Load, Map, Regroup, Statement, Store
from search_spaces.programs.tile_program import Buffer
from search_spaces.programs.tiles import Slice, Tile, sliced
from search_spaces.workloads.dtypes import dtype, is_float, is_integer, range_of
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import (
    Access,
    Apply,
    Expression,
    Gather,
    Integer,
    Literal,
    Position,
    Segment,
    why_not_sliced,
)
from search_spaces.workloads.expressions.kinds import is_integral
from search_spaces.workloads.expressions.operators import COMPARISONS, ROUNDINGS, WRAPPINGS
from search_spaces.workloads.expressions.whole_numbers import Bounds, applied, whole_numbers
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Workload

# Slices of the axes at one place of a tile: the start of each, and its number of positions in the tile.
Place = Mapping[str, Slice]


# Prefixes of ends of ranges in places.
LEAST, MOST = "least ", "most "

# Element types of the results of conversions, by operator.
_CAST_TO = {**ROUNDINGS, **WRAPPINGS, "to_integer": "int64", "to_float": "float32"}
# A search lowers thousands of schedules of a workload, which share their buffers and most of their places.
_SHARED = 4096


@lru_cache(_SHARED)
def start_of(*terms: tuple[str, int]) -> Affine:
    """`Affine.of`, cached."""
    return Affine.of(*terms)


@lru_cache(_SHARED)
def buffers(workload: Workload, *workspaces: Buffer) -> tuple[Buffer, ...]:
    """The buffers of a program for this workload, in calling order."""
    inputs = tuple(Buffer(t.name, t.shape, t.dtype, "input", t.strides) for t in workload.inputs)
    outputs = tuple(Buffer(t.name, t.shape, t.dtype, "output", t.strides) for t in workload.outputs)
    return (*inputs, *outputs, *workspaces)


@lru_cache(_SHARED)
def workspace_name(workload: Workload, wanted: str) -> str:
    """A name for a workspace that no tensor of the workload has."""
    taken = {t.name for t in workload.inputs} | {s.name for s in workload.stages}
    return Names(taken).fresh(wanted)


def slices_at(access: Access, place: Place) -> tuple[Slice, ...]:
    """Slices of an access whose axes are at `place`: each dimension moves along at most one axis with an extent."""
    return tuple(slice_at(i, place) for i in access.index)


def slice_at(index: Affine, place: Place) -> Slice:
    """Slice of a dimension that is indexed by this form, with its axes at `place`.

    Before:  x[2*i + r - 1] for i at i.0*64 : +64 and r at r.0
    After:   x[i.0*128 + r.0 - 1 : +64 step 2]
    """
    if index.is_axis:
        return place[index.axis]
    moving = Slice(Affine())
    for axis, c in index.terms:
        piece = place[axis]
        if piece.extent is not None:
            assert moving.extent is None, f"{index} moves along two axes that have an extent"
            assert piece.skew is None or c == 1, f"{index} takes steps of {c} from where vectors begin"
            moving = replace(piece, step=c * piece.step)
    return replace(moving, start=index.substituted({axis: place[axis].start for axis, _ in index.terms}))


def largest_at(form: Affine, place: Place) -> Affine:
    """The largest value of a form of the axes at the place.

    An end of a range, which is no axis, has two: the least one of the tile's rows, and the largest.
    """
    pieces = {axis: place[axis if axis in place else f"{MOST if c > 0 else LEAST}{axis}"] for axis, c in form.terms}
    along = sum(max(0, c * pieces[axis].step * ((pieces[axis].extent or 1) - 1)) for axis, c in form.terms)
    return form.substituted({axis: piece.start for axis, piece in pieces.items()}) + Affine(offset=along)


@dataclass
class Emitter:
    """Appends the statements that compute expressions on the tiles of one place.

    `tiles` has the known tiles by tensor name (an accumulator, a statistic of the rows); every other tensor is an input
    and is loaded where the axes are. Common subexpressions are computed once. `neighbours`: shared by emitters of
    interleaved places. `selections`: if given, selections between reads of one tensor become one read. `cut`: axes that
    are split into several in tiles, with the extents of these. `short`: integers that need no more are of 32 bits.
    `called`: names wanted for loaded tiles, by tensor; by default that of the tensor.
    """

    place: Place
    inputs: Mapping[str, str]
    names: Names
    tiles: dict[str, Tile] = field(default_factory=dict)
    body: list[Statement] = field(default_factory=list)
    fill: float = 0.0
    neighbours: Neighbours | None = None
    selections: Selections | None = None
    cut: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    short: bool = False
    called: Mapping[str, str] = field(default_factory=dict)
    _known: dict[Expression, Tile | float | int] = field(default_factory=dict)
    # Of tiles of integers that have few values.
    _bounds: dict[str, Bounds] = field(default_factory=dict)

    def within(self) -> Emitter:
        """An emitter for a nested body: it knows this one's tiles, and keeps its own to itself."""
        return replace(self, tiles=dict(self.tiles), body=[], _known=dict(self._known), _bounds=dict(self._bounds))

    def know(self, expression: Expression, value: Tile) -> None:
        """Take the tile for the value of the expression from here on."""
        self._known[expression] = value

    def emit(self, expression: Expression, name: str = "t") -> Tile | float | int:
        """The tile (or constant) with the value of the expression; `name` is wanted for the last tile."""
        if expression in self._known:
            return self._known[expression]
        match expression:
            case Literal(value):
                return float(value)
            case Integer(value):
                return value
            case Access(tensor, _) if tensor in self.tiles:
                return self.tiles[tensor]
            case Access():
                result: Tile | float | int = self._load(expression)
            case Gather():
                result = self._gather(expression)
            case Segment(tensor, position, size):
                at = self._position(position, int) if isinstance(position, Affine) else self.emit(position)
                result = self._bisected(tensor, at, size)
            case Position(index):
                result = self._position(index, float)
            case Apply("to_integer", (Position(index),)):
                result = self._position(index, int)
            case Apply(operator, (argument,)) if operator in _CAST_TO:
                result = self._converted(operator, argument, name)
            case Apply("where") if (selected := self._selected(expression)) is not None:
                result = self._load_selected(selected)
            case Apply(operator, arguments) if operator in COMPARISONS and is_integral(arguments[0]):
                result = self.map(operator, *(self.emit(a) for a in arguments), name=name, compared="int64")
            case Apply(operator, arguments) if is_integral(expression) and operator != "where":
                result = self._of_integers(operator, [self.emit(a) for a in arguments], name)
            case Apply(operator, arguments):
                dtype = "int64" if is_integral(expression) else "float32"
                result = self.map(operator, *(self.emit(a) for a in arguments), name=name, dtype=dtype)
        self._known[expression] = result
        return result

    def _converted(self, operator: str, argument: Expression, name: str) -> Tile:
        """The value in the type of a conversion; integers of inputs in 32 bits if their type has no more."""
        value, read = self.emit(argument), isinstance(argument, Access) and argument.tensor not in self.tiles
        whole = whole_numbers(argument, self.inputs) if read else self._bounds_of(value)
        found = applied(operator, [whole])
        narrow = self.short and operator == "to_integer" and found is not None
        made = self._cast(value, "int32" if narrow else _CAST_TO[operator], name)
        return self._within(made, found)

    def _of_integers(self, operator: str, arguments: list[Tile | float | int], name: str) -> Tile | float | int:
        """A number if it is one; in 32 bits if neither arguments nor result need more, nor shifts."""
        parts = [self._bounds_of(a) for a in arguments]
        found = applied(operator, parts)
        if found and found[0] == found[1] and not any(isinstance(a, Tile) for a in arguments):
            return found[0]
        by = parts[-1] if operator in ("shift_left", "shift_right") else None
        narrow = self.short and found is not None and None not in parts and max(map(abs, found)) < 2**31
        narrow = narrow and (by is None or 0 <= by[0] <= by[1] < 32)
        made = self.map(operator, *arguments, name=name, dtype="int32" if narrow else "int64")
        return self._within(made, found) if narrow else made

    def _bounds_of(self, value: Tile | float | int) -> Bounds | None:
        if isinstance(value, Tile):
            return self._bounds.get(value.name)
        return (value, value) if isinstance(value, int) else None

    def _within(self, tile: Tile, bounds: Bounds | None) -> Tile:
        if bounds and is_integer(tile.dtype):
            self._bounds[tile.name] = bounds
        return tile

    def tile(self, expression: Expression, name: str) -> Tile:
        """Like `emit`, but a constant becomes a tile without axes."""
        value = self.emit(expression, name)
        if isinstance(value, Tile):
            return value
        return self._constant(value, name)

    def _constant(self, value: float | int, name: str) -> Tile:
        if isinstance(value, int):
            return self.map("add", value, 0, name=name, dtype="int64")
        return self.map("add", value, 0.0, name=name)

    def map(
        self,
        operator: str,
        *arguments: Tile | float | int,
        name: str = "t",
        dtype: str = "float32",
        compared: Compared = "float32",
    ) -> Tile:
        """A pointwise operation on tiles, broadcast to the axes of all of them, in the order of the place."""
        extents = {x: e for t in arguments if isinstance(t, Tile) for x, e in zip(t.axes, t.shape, strict=True)}
        axes = tuple(x for x in self._order if x in extents)
        dst = Tile(self.names.fresh(name), axes, tuple(extents[x] for x in axes), dtype)
        self.body.append(Map(dst, operator, tuple(a.name if isinstance(a, Tile) else a for a in arguments), compared))
        return dst

    def assign(self, dst: Tile, operator: str, *arguments: Tile | float | int) -> None:
        """A pointwise operation into a tile that exists (a loop-carried one)."""
        self.body.append(Map(dst, operator, tuple(a.name if isinstance(a, Tile) else a for a in arguments)))

    def store(self, buffer: str, index: tuple[str, ...], src: Tile) -> None:
        """`buffer[index axes at the place] = src`, repeated along axes that the tile lacks."""
        src = self.everywhere(index, src)
        slices = tuple(self.place[x] for x in index)
        self.body.append(Store(buffer, slices, src.name))

    def everywhere(self, index: tuple[str, ...], src: Tile) -> Tile:
        """The tile with all of these axes that have an extent at the place, repeated along those that it lacks."""
        along = sliced(self.place[x] for x in index)
        missing = {x: extent for x, extent in along.items() if x not in src.axes}
        if not missing:
            return src
        integral = is_integer(src.dtype)
        element = "int64" if integral else "float32"
        zeros = Tile(self.names.fresh("everywhere"), tuple(missing), tuple(missing.values()), element)
        self.body.append(Fill(zeros, 0 if integral else 0.0))
        return self.map("add", src, zeros, dtype=zeros.dtype)

    def _cast(self, value: Tile | float | int, to: str, name: str) -> Tile:
        tile = value if isinstance(value, Tile) else self._constant(value, "t")
        dst = Tile(self.names.fresh(name), tile.axes, tile.shape, to)
        self.body.append(Map(dst, "cast", (tile.name,)))
        return dst

    def _position(self, index: Affine, kind: type[float | int]) -> Tile | float | int:
        """The form as a value: the sum of the positions along its axes."""
        known = [(x, c) for x, c in index.terms if self.place[x].is_constant]
        total: Tile | float | int = kind(index.offset + sum(c * self.place[x].start.offset for x, c in known))
        dtype = "float32" if kind is float else "int64"
        for axis, coefficient in index.terms:
            piece = self.place[axis]
            if piece.is_constant:
                continue
            along = Tile(self.names.fresh(f"at_{axis}"), *self._tiled((piece,)), dtype)
            self.body.append(statements.Position(along, piece))
            along = self._regrouped(along)
            scaled = along if coefficient == 1 else self.map("mul", along, kind(coefficient), dtype=dtype)
            total = scaled if total == 0 else self.map("add", scaled, total, dtype=dtype)
        return total

    def _gather(self, gather: Gather, fill: float | int | None = None) -> Tile:
        index: list[Slice | str] = []
        axes: dict[str, int] = {}
        taken: set[str] = set()
        for at in gather.index:
            moving = self._moving(at) if isinstance(at, Affine) else ()
            if isinstance(at, Affine) and len(moving) < 2 and not {*moving} & taken:
                piece = slice_at(at, self.place)
                index.append(piece)
                taken.update(moving)
                axes.update(sliced([piece]))
            else:
                by = Apply("to_integer", (Position(at),)) if isinstance(at, Affine) else at
                looked_up = self.tile(by, f"{gather.tensor}_index")
                index.append(looked_up.name)
                axes.update(zip(looked_up.axes, looked_up.shape, strict=True))
        kept = tuple(x for x in self._order if x in axes)
        element = dtype(self.inputs[gather.tensor]).name
        dst = Tile(self.names.fresh(gather.tensor), kept, tuple(axes[x] for x in kept), element)
        self.body.append(statements.Gather(dst, gather.tensor, tuple(index), fill))
        return self._regrouped(dst)

    def _bisected(self, tensor: str, position: Tile | float | int, size: int) -> Tile:
        """The number of the `size` elements of a sorted tensor that are at most the position, as PyTorch finds it.

        Before:  the first i with position < tensor[i], or size
        After:   first, end = 0, size; and for each bit of the size:
                     i = (first + end) // 2
                     first, end = (i + 1, end) if tensor[i] <= position else (first, i)
                 which ends with first = end
        """
        element = dtype(self.inputs[tensor]).name
        first: Tile | int = 0
        end: Tile | int = size
        for _ in range(size.bit_length()):
            total = self.map("add", first, end, dtype="int64")
            middle = self.map("shift_right", total, 1, name=f"{tensor}_index", dtype="int64")
            found = Tile(self.names.fresh(tensor), middle.axes, middle.shape, element)
            # Of a closed interval, the element at the end is larger than the position. Beyond the last one, it is too,
            # unless the position is the largest integer: then the first index beyond is cut to the size.
            self.body.append(statements.Gather(found, tensor, (middle.name,), range_of(element)[1]))
            at_most = self.map("le", self._cast(found, "int64", "t"), position, compared="int64")
            first = self.map("where", at_most, self.map("add", middle, 1, dtype="int64"), first, dtype="int64")
            end = self.map("where", at_most, end, middle, dtype="int64")
        return self.map("minimum", first, size, name="segment", dtype="int64")

    @property
    def _order(self) -> tuple[str, ...]:
        """The axes of tiles, in order."""
        return tuple(x for axis in self.place for x in (axis, *(name for name, _ in self.cut.get(axis, ()))))

    def _regrouped(self, tile: Tile) -> Tile:
        """The tile with axes split as in `cut`."""
        for axis, parts in self.cut.items():
            if axis in tile.axes:
                at = tile.axes.index(axis)
                axes = (*tile.axes[:at], *(name for name, _ in parts), *tile.axes[at + 1 :])
                shape = (*tile.shape[:at], *(extent for _, extent in parts), *tile.shape[at + 1 :])
                dst = Tile(self.names.fresh(f"{tile.name}_regrouped"), axes, shape, tile.dtype)
                self.body.append(Regroup(dst, tile.name, axis))
                tile = dst
        return tile

    def _selected(self, selection: Expression) -> SelectedRead | None:
        """The selection as one read, if slices can express it."""
        read = self.selections.read(selection) if self.selections is not None else None
        if read is None:
            return None
        tiled = [[x for x in along if self.place[x].extent is not None] for along in read.axes]
        moving = [x for along in tiled for x in along]
        return read if len(moving) == len({*moving}) and all(len(along) < 2 for along in tiled) else None

    def _load_selected(self, read: SelectedRead) -> Tile:
        slices = tuple(slice_chosen(i, lambda form: slice_at(form, self.place)) for i in read.index)
        if read.inside:
            slices = tuple(replace(s, clamped=True) for s in slices)
        return self._loaded(read.tensor, slices, None if read.inside else read.fill)

    def _tiled(self, slices: Iterable[Slice]) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """The axes of the slices, after those along which they are moved back; and the extents."""
        pieces = tuple(slices)
        own = sliced(pieces)
        back = sliced(p for piece in pieces if piece.skew for p, _ in piece.skew.terms if p.axis not in own)
        return (*back, *own), (*back.values(), *own.values())

    def _moving(self, index: Affine) -> tuple[str, ...]:
        """The axes of a form that have an extent here."""
        return tuple(v for v, _ in index.terms if self.place[v].extent is not None)

    def _load(self, access: Access) -> Tile:
        if why_not_sliced(access, [x for x, piece in self.place.items() if piece.extent is not None]):
            outside = self._outside(access.tensor, access.fill)
            return self._gather(Gather(access.tensor, access.index), self.fill if outside is None else outside)
        return self._loaded(access.tensor, slices_at(access, self.place), access.fill)

    def _loaded(self, tensor: str, slices: tuple[Slice, ...], outside: float | int | None) -> Tile:
        axes, shape = self._tiled(slices)
        outside = self._outside(tensor, outside)
        fill, guarded = self.fill if outside is None else outside, outside is not None
        unnamed = Load(
            Tile(self.called.get(tensor, ""), axes, shape, dtype(self.inputs[tensor]).name),
            tensor,
            slices,
            fill,
            guarded=guarded,
        )
        if self.neighbours is not None:
            return self.neighbours.loaded(unnamed, self.names, self.body)
        dst = replace(unnamed.dst, name=self.names.fresh(unnamed.dst.name or tensor))
        self.body.append(replace(unnamed, dst=dst))
        return self._regrouped(dst)

    def _outside(self, tensor: str, fill: float | int | None) -> float | int | None:
        """The value read outside of a tensor, as a number of its elements' kind."""
        return fill if fill is None or is_float(dtype(self.inputs[tensor]).name) else int(fill)
