"""Places of a tile in a buffer, as Triton text: offsets, masks and pointers.

Offsets and masks are vectors along one axis of a tile, defined once per start and extent in the outermost loop where
the start is known:

    offs_m = m_0 * 128 + tl.arange(0, 128)
    mask_m = offs_m < 1000
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autosched.backends.printing.scope import Block, Identifiers
from search_spaces.programs.addressing import Address, Dimension
from search_spaces.programs.tiles import Flat, Skew, Slice
from search_spaces.workloads.expressions.affine import Affine


@dataclass(frozen=True)
class Place:
    """A printed pointer and the condition under which it may be followed ("" when it always may)."""

    pointer: str
    mask: str


@dataclass(frozen=True)
class Along:
    """A printed tensor of integers with these axes, as an index."""

    name: str
    axes: tuple[str, ...]


class Indexing:
    """Prints the indices of one kernel; definitions go into its block."""

    def __init__(
        self, extents: Mapping[str, int], identifiers: Identifiers, block: Block, digits: Mapping[str, Flat] = {}
    ) -> None:
        """`digits`: the variables that follow from others."""
        self.extents = dict(extents)
        self._digits = digits
        self._identifiers = identifiers
        self._block = block

    def variable(self, name: str) -> str:
        """The identifier of a grid or loop variable, or of a digit of some, defined where needed."""
        identifier = self._identifiers.of(("variable", name), name)
        if flat := self._digits.get(name):
            number = self.affine(flat.start)
            number = f"({number})" if " " in number else number
            text = f"{identifier} = {number} {flat.text('//')}"
            self._block.define(identifier, text, self.variables(flat.start))
        return identifier

    def affine(self, value: Affine, wide: bool = False) -> str:
        """The text of an affine form; variables that are always 0 vanish. `wide`: in 64 bits."""
        parts = []
        for name, coefficient in self._varying(value):
            variable = f"tl.cast({self.variable(name)}, tl.int64)" if wide else self.variable(name)
            parts.append(variable if coefficient == 1 else f"{variable} * {coefficient}")
        if value.offset or not parts:
            parts.append(str(value.offset))
        return " + ".join(parts).replace("+ -", "- ")

    def variables(self, value: Affine) -> frozenset[str]:
        """The variables that the printed form depends on."""
        names = [name for name, _ in self._varying(value)]
        own = (self.variables(self._digits[name].start) for name in names if name in self._digits)
        return frozenset(name for name in names if name not in self._digits).union(*own)

    def offsets(self, axis: str, start: Affine, extent: int, step: int = 1) -> str:
        """The identifier of the vector `start + step * (0 … extent - 1)`, defined where needed."""
        name = self._identifiers.of(("offsets", axis, start, extent, step), f"offs_{axis}")
        begin = self.affine(start)
        along = f"tl.arange(0, {extent})" if step == 1 else f"tl.arange(0, {extent}) * {step}"
        return self._define(name, along if begin == "0" else f"{begin} + {along}", Slice(start))

    def mask(self, d: Dimension, name: str = "") -> str:
        """The identifier of the condition that positions exist, defined where needed; `name`: of the axis."""
        piece, axis = d.slice, d.axis or name
        if not d.tests:
            return ""
        value = self._along(axis, piece)
        tests = [f"{value} {t}" for t in d.tests]
        mask = self._identifiers.of(("mask", axis, replace(piece, clamped=False), d.size), f"mask_{axis}")
        return self._define(mask, " & ".join(f"({t})" for t in tests) if len(tests) > 1 else tests[0], piece)

    def positions(self, piece: Slice) -> Along:
        """The positions of a slice, as a vector, or as a tile if they are moved back along other axes."""
        axis = piece.axis
        along = self._along(axis, piece)
        if piece.skew is None:
            return Along(along, (axis,))
        back = self._skew(axis, piece.skew)
        axes = (*piece.skew.axes, axis)
        name = self._identifiers.of(("moved", axis, piece), f"at_{axis}")
        text = f"{along}{expand((axis,), axes)} - {back}{expand(piece.skew.axes, axes)}"
        self._block.define(name, f"{name} = {text}", self.variables(piece.start) | self._skewed_by(piece.skew))
        return Along(name, axes)

    def inside(self, d: Dimension) -> Along | None:
        """The condition that positions exist; None if they always do."""
        piece, axis = d.slice, d.axis
        if piece.skew is None:
            mask = self.mask(d)
            return Along(mask, (axis,)) if mask else None
        if not d.tests:
            return None
        at = self.positions(piece)
        name = self._identifiers.of(("inside", axis, piece, d.size), f"in_{axis}")
        text = " & ".join(f"({at.name} {t})" for t in reversed(d.tests))
        self._block.define(name, f"{name} = {text}", self.variables(piece.start) | self._skewed_by(piece.skew))
        return Along(name, at.axes)

    def place(self, pointer: str, address: Address, axes: tuple[str, ...], stored: bool = False) -> Place:
        """The place of a tile with `axes` in the buffer that begins at the pointer."""
        if column := address.column_at_vectors(stored):
            return self._by_vectors(pointer, address, column, axes)
        start = self.affine(address.base, address.wide)
        terms = [pointer] if start == "0" else [pointer, start]
        masks: list[str] = []
        for d in address.dimensions:
            terms += [self._term(d, address, axes)] if d.axis or d.is_chosen else []
            masks.append(self._guard(d, address, axes))
        return Place(" + ".join(terms), " & ".join(filter(None, masks)))

    def looked_up(self, pointer: str, address: Address, index: Mapping[str, Along], axes: tuple[str, ...]) -> Place:
        """The same with some dimensions indexed by integers of 64 bits, by the names of their tiles."""
        terms, masks = [pointer], list[str]()
        for d in address.dimensions:
            if isinstance(d.index, str):
                at = index[d.index]
                along = expand(at.axes, axes)
                terms.append(_scaled(at.name + along, d.stride))
                masks += [f"({at.name} {t}){along}" for t in d.tests]
                continue
            if d.axis:
                terms.append(self._term(d, address, axes, wide=True))
            else:
                start = d.index.start
                offset = self.affine(start, wide=True)
                several = d.stride != 1 and len(start.terms) + bool(start.offset) > 1
                terms.append(_scaled(f"({offset})" if several else offset, d.stride))
            masks.append(self._guard(d, address, axes))
        return Place(" + ".join(terms), " & ".join(filter(None, masks)))

    def _term(self, d: Dimension, address: Address, axes: tuple[str, ...], wide: bool = False) -> str:
        """The term of a dimension in the offset of a tile; `wide`: in 64 bits in any case."""
        piece, wide = d.slice, wide or address.wide
        if not d.axis:
            chosen = self._along(_row(address), piece)
            return f"tl.cast({chosen}, tl.int64) * {d.stride}" if wide else f"{chosen} * {d.stride}"
        at = Along(self._clamped(d), (d.axis,)) if d.is_clamped else self.positions(piece)
        return _scaled(at.name + (".to(tl.int64)" if wide else "") + expand(at.axes, axes), d.stride)

    def _guard(self, d: Dimension, address: Address, axes: tuple[str, ...]) -> str:
        """The condition that a dimension has an element, for a tile."""
        if not d.axis:
            return "" if d.slice.clamped else self.mask(d, _row(address))
        inside = None if d.is_clamped else self.inside(d)
        return inside.name + expand(inside.axes, axes) if inside else ""

    def _by_vectors(self, pointer: str, address: Address, column: Dimension, axes: tuple[str, ...]) -> Place:
        """The place of rows that begin anywhere, from the vector on in which each begins."""
        skew = column.slice.skew
        assert skew is not None
        rows, along, masks = list[str](), "", list[str]()
        for d in address.dimensions:
            if d is column:
                along = self._along(d.axis, d.slice) + expand((d.axis,), axes)
                masks += [f"({along} < {self._end(d, skew)}{expand(skew.axes, axes)})"] if d.exceeds else []
                continue
            start = self._term(d, address, axes) if d.axis else self.affine(d.slice.start * d.stride, address.wide)
            rows += [start] if start != "0" else []
            masks.append(self._guard(d, address, axes))
        begin = f"({' + '.join(rows)}) // {skew.vector} * {skew.vector}" if rows else "0"
        return Place(f"{pointer} + {begin} + {along}", " & ".join(filter(None, masks)))

    def _end(self, d: Dimension, skew: Skew) -> str:
        """The identifier of the end of rows that are moved back: after whole vectors, or loads would not be."""
        end = self._identifiers.of(("end", d.axis, skew, d.size), f"end_{d.axis}")
        text = f"({self._skew(d.axis, skew)} + {d.size + skew.vector - 1}) // {skew.vector} * {skew.vector}"
        self._block.define(end, f"{end} = {text}", self._skewed_by(skew))
        return end

    def _skew(self, axis: str, skew: Skew) -> str:
        """The identifier of the distance by which positions along an axis are moved back."""
        name = self._identifiers.of(("skew", axis, skew), f"skew_{axis}")
        parts = []
        for piece, apart in skew.terms:
            if piece.extent is None:
                parts.append(self.affine(piece.start * apart))
            else:
                along = self._along(piece.axis, piece) + expand((piece.axis,), skew.axes)
                parts.append(along if apart == 1 else f"{along} * {apart}")
        self._block.define(name, f"{name} = ({' + '.join(parts)}) % {skew.vector}", self._skewed_by(skew))
        return name

    def _skewed_by(self, skew: Skew) -> frozenset[str]:
        """The variables that a skew depends on."""
        return frozenset(v for piece, _ in skew.terms for v in self.variables(piece.start))

    def _along(self, axis: str, piece: Slice) -> str:
        """The identifier of the positions of a slice; the text of a single one that is not selected among others."""
        if piece.before:
            return self._chosen(axis, piece)
        if piece.extent is None:
            return self.affine(piece.start)
        if piece.flat is not None:
            return self._counted(piece, piece.flat)
        return self.offsets(axis, piece.start, piece.extent, piece.step)

    def _counted(self, piece: Slice, flat: Flat) -> str:
        """The identifier of positions that are counted along an axis of several dimensions."""
        axis, extent = piece.axis, piece.extent or 1
        count = self._identifiers.of(("count", axis, flat, extent), f"{'second' if flat.size else 'first'}_{axis}")
        text = f"{self.offsets(axis, flat.start, extent)} {flat.text('//')}"
        self._block.define(count, f"{count} = {text}", self.variables(flat.start))
        begin, along = self.affine(piece.start), count if piece.step == 1 else f"{count} * {piece.step}"
        if begin == "0" and piece.step == 1:
            return count
        name = self._identifiers.of(("counted", piece.start, piece.step, axis, flat, extent), f"offs_{axis}")
        return self._define(name, along if begin == "0" else f"{begin} + {along}", piece)

    def _chosen(self, axis: str, piece: Slice) -> str:
        """The identifier of selected positions: those of the first slice that applies."""
        text = self._along(axis, replace(piece, before=()))
        for b in reversed(piece.before):
            text = f"tl.where({self._along(axis, b.at)} < {b.size}, {self._along(axis, b.then)}, {text})"
        return self._define(self._identifiers.of(("chosen", axis, piece), f"chosen_{axis}"), text, piece)

    def _clamped(self, d: Dimension) -> str:
        """The identifier of the positions of a slice; outside the dimension, its first or last."""
        name = self._identifiers.of(("clamped", d.axis, d.slice, d.size), f"near_{d.axis}")
        positions = self._along(d.axis, d.slice)
        positions = f"tl.maximum({positions}, 0)" if d.precedes else positions
        positions = f"tl.minimum({positions}, {d.size - 1})" if d.exceeds else positions
        return self._define(name, positions, d.slice)

    def _define(self, name: str, text: str, piece: Slice) -> str:
        self._block.define(name, f"{name} = {text}", self._variables_of(piece))
        return name

    def _variables_of(self, piece: Slice) -> frozenset[str]:
        others = (self._variables_of(s) for b in piece.before for s in (b.at, b.then))
        flat = self.variables(piece.flat.start) if piece.flat else frozenset[str]()
        return self.variables(piece.start).union(flat, *others)

    def _varying(self, value: Affine) -> list[tuple[str, int]]:
        return [(name, c) for name, c in value.terms if self.extents[name] > 1]


def _scaled(offsets: str, stride: int) -> str:
    return offsets if stride == 1 else f"{offsets} * {stride}"


def _row(address: Address) -> str:
    """The name of single positions in a buffer."""
    return f"{address.buffer.name}_row"


def expand(axes: tuple[str, ...], target: tuple[str, ...]) -> str:
    """The subscript that gives a tensor with `axes` the rank of one with `target`: `[:, None]`; "" for equal axes."""
    if axes == target or not axes:
        return ""
    return "[" + ", ".join(":" if axis in axes else "None" for axis in target) + "]"
