"""Where a tile lies in a buffer, as Triton text: offsets, masks and pointers.

Offsets and masks are vectors along one axis of a tile, defined once per start and extent in the outermost loop where
the start is known:

    offs_m = m_0 * 128 + tl.arange(0, 128)
    mask_m = offs_m < 1000
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autosched.backends.printing.scope import Block, Identifiers
from search_spaces.programs.tile_program import Buffer
from search_spaces.programs.tiles import Flat, Skew, Slice, may_exceed, may_precede, reach
from search_spaces.workloads.expressions.affine import Affine

# Offsets up to here fit the 32-bit integers that Triton computes indices with.
_MAX_OFFSET = 2**31 - 1


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

    def __init__(self, extents: Mapping[str, int], identifiers: Identifiers, block: Block) -> None:
        self.extents = dict(extents)
        self._identifiers = identifiers
        self._block = block

    def variable(self, name: str) -> str:
        """The identifier of a grid or loop variable."""
        return self._identifiers.of(("variable", name), name)

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
        return frozenset(name for name, _ in self._varying(value))

    def exceeds(self, piece: Slice, size: int) -> bool:
        """Whether the slice can reach beyond a dimension of `size`."""
        return may_exceed(piece, size, self.extents)

    def precedes(self, piece: Slice) -> bool:
        """Whether the slice can reach below 0."""
        return may_precede(piece, self.extents)

    def offsets(self, axis: str, start: Affine, extent: int, step: int = 1) -> str:
        """The identifier of the vector `start + step * (0 … extent - 1)`, defined where needed."""
        name = self._identifiers.of(("offsets", axis, start, extent, step), f"offs_{axis}")
        begin = self.affine(start)
        along = f"tl.arange(0, {extent})" if step == 1 else f"tl.arange(0, {extent}) * {step}"
        return self._define(name, along if begin == "0" else f"{begin} + {along}", Slice(start))

    def mask(self, axis: str, piece: Slice, size: int) -> str:
        """The identifier of the condition that a slice is inside a dimension of `size`, defined where needed."""
        extent, start = piece.extent, piece.start
        value = self.affine(start) if extent is None and not piece.before else self._along(axis, piece)
        tests = [f"{value} < {size}"] if self.exceeds(piece, size) else []
        # What is too large for 32 bits is negative in them.
        wraps = reach(piece, self.extents)[1] > _MAX_OFFSET
        tests += [f"{value} >= 0"] if self.precedes(piece) or wraps else []
        if not tests:
            return ""
        name = self._identifiers.of(("mask", axis, replace(piece, clamped=False), size), f"mask_{axis}")
        return self._define(name, " & ".join(f"({t})" for t in tests) if len(tests) > 1 else tests[0], piece)

    def positions(self, axis: str, piece: Slice) -> Along:
        """The positions of a slice, as a vector, or as a tile where they are moved back along other axes."""
        along = self._along(axis, piece)
        if piece.skew is None:
            return Along(along, (axis,))
        back = self._skew(axis, piece.skew)
        axes = (*piece.skew.axes, axis)
        name = self._identifiers.of(("moved", axis, piece), f"at_{axis}")
        text = f"{along}{expand((axis,), axes)} - {back}{expand(piece.skew.axes, axes)}"
        self._block.define(name, f"{name} = {text}", self.variables(piece.start) | self._skewed_by(piece.skew))
        return Along(name, axes)

    def inside(self, axis: str, piece: Slice, size: int) -> Along | None:
        """The condition that a slice is inside a dimension of `size`; None where it always is."""
        if piece.skew is None:
            mask = self.mask(axis, piece, size)
            return Along(mask, (axis,)) if mask else None
        tests = [">= 0"] if self.precedes(piece) else []
        tests += [f"< {size}"] if self.exceeds(piece, size) else []
        if not tests:
            return None
        at = self.positions(axis, piece)
        name = self._identifiers.of(("inside", axis, piece, size), f"in_{axis}")
        text = " & ".join(f"({at.name} {t})" for t in tests)
        self._block.define(name, f"{name} = {text}", self.variables(piece.start) | self._skewed_by(piece.skew))
        return Along(name, at.axes)

    def place(
        self, buffer: Buffer, pointer: str, slices: tuple[Slice, ...], axes: tuple[str, ...], stored: bool = False
    ) -> Place:
        """Where a tile with `axes` lies in a buffer, by pointers; at last the axes of dimensions that are sliced."""
        wide = self._reach(buffer, slices) > _MAX_OFFSET
        skewed = next((p for p in slices if p.skew), None)
        if skewed and self._begins_at_vectors(buffer, slices, skewed, stored):
            return self._by_vectors(buffer, pointer, slices, axes, wide)
        base = Affine()
        terms: list[str] = []
        masks: list[str] = []
        for piece, stride, size in zip(slices, buffer.strides, buffer.shape, strict=True):
            if piece.extent is None:
                row = f"{buffer.name}_row"
                if piece.before:
                    chosen = self._along(row, piece)
                    terms.append(f"tl.cast({chosen}, tl.int64) * {stride}" if wide else f"{chosen} * {stride}")
                else:
                    base += piece.start * stride
                masks.append("" if piece.clamped else self.mask(row, piece, size))
                continue
            axis, along = piece.axis, expand((piece.axis,), axes)
            if piece.skew:
                at, inside = self.positions(axis, piece), self.inside(axis, piece, size)
                offsets = at.name + (".to(tl.int64)" if wide else "") + expand(at.axes, axes)
                terms.append(offsets if stride == 1 else f"{offsets} * {stride}")
                masks.append(inside.name + expand(inside.axes, axes) if inside else "")
                continue
            clamped = piece.clamped and (self.exceeds(piece, size) or self.precedes(piece))
            positions = self._clamped(axis, piece, size) if clamped else self._along(axis, piece)
            offsets = positions + (".to(tl.int64)" if wide else "") + along
            terms.append(offsets if stride == 1 else f"{offsets} * {stride}")
            mask = "" if clamped else self.mask(axis, piece, size)
            masks.append(mask and mask + along)
        start = self.affine(base, wide)
        return Place(" + ".join([pointer, *([start] if start != "0" else []), *terms]), " & ".join(filter(None, masks)))

    def _begins_at_vectors(self, buffer: Buffer, slices: tuple[Slice, ...], column: Slice, stored: bool) -> bool:
        """Whether all rows of the slice that is moved back begin at whole vectors of the buffer, so moved.

        A whole vector is read wherever one of its elements is needed, so the buffer must end with one; and is stored
        only where all of them are.
        """
        assert column.skew is not None
        vector = column.skew.vector
        apart = {piece: between % vector for piece, between in column.skew.terms}
        for piece, stride, size in zip(slices, buffer.strides, buffer.shape, strict=True):
            if piece is column:
                before, beyond = self.precedes(piece), self.exceeds(piece, size)
                cut = (before or beyond) if stored else (beyond and buffer.span % vector)
                if stride != 1 or piece.step != 1 or cut:
                    return False
            elif stride % vector != apart.pop(piece, 0):
                return False
        return not any(apart.values())

    def _by_vectors(
        self, buffer: Buffer, pointer: str, slices: tuple[Slice, ...], axes: tuple[str, ...], wide: bool
    ) -> Place:
        """The place of rows that begin anywhere, from the vector on that each begins in."""
        rows: list[str] = []
        columns, masks = "", list[str]()
        vector = 1
        for piece, stride, size in zip(slices, buffer.strides, buffer.shape, strict=True):
            if piece.extent is None:
                start = self.affine(piece.start * stride, wide)
                rows += [start] if start != "0" else []
                masks.append(self.mask(f"{buffer.name}_row", piece, size))
                continue
            axis, along = piece.axis, expand((piece.axis,), axes)
            if piece.skew is None:
                rows.append(f"{self._along(axis, piece)}{'.to(tl.int64)' if wide else ''}{along} * {stride}")
                mask = self.mask(axis, piece, size)
                masks.append(mask and mask + along)
                continue
            vector = piece.skew.vector
            columns = f"{self._along(axis, piece)}{along}"
            if self.exceeds(piece, size):
                back = self._skew(axis, piece.skew)
                end = self._identifiers.of(("end", axis, piece.skew, size), f"end_{axis}")
                # Whole vectors, or loads would not be.
                text = f"({back} + {size + vector - 1}) // {vector} * {vector}"
                self._block.define(end, f"{end} = {text}", self._skewed_by(piece.skew))
                masks.append(f"({columns} < {end}{expand(piece.skew.axes, axes)})")
        begin = f"({' + '.join(rows)}) // {vector} * {vector}" if rows else "0"
        return Place(f"{pointer} + {begin} + {columns}", " & ".join(filter(None, masks)))

    def _skew(self, axis: str, skew: Skew) -> str:
        """The identifier of how far positions along an axis are moved back."""
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

    def looked_up(self, buffer: Buffer, pointer: str, index: Sequence[Slice | Along], axes: tuple[str, ...]) -> Place:
        """Where a tile with `axes` lies in a buffer of which some dimensions are indexed by integers of 64 bits."""
        terms: list[str] = []
        masks: list[str] = []
        for at, stride, size in zip(index, buffer.strides, buffer.shape, strict=True):
            if isinstance(at, Along):
                along = expand(at.axes, axes)
                offsets = at.name + along
                masks += [f"({at.name} >= 0){along}", f"({at.name} < {size}){along}"]
            elif at.extent is None:
                offsets = self.affine(at.start, wide=True)
                offsets = f"({offsets})" if stride != 1 and len(at.start.terms) + bool(at.start.offset) > 1 else offsets
                masks.append(self.mask(f"{buffer.name}_row", at, size))
            else:
                along = expand((at.axis,), axes)
                offsets = f"{self._along(at.axis, at)}.to(tl.int64){along}"
                mask = self.mask(at.axis, at, size)
                masks.append(mask and mask + along)
            terms.append(offsets if stride == 1 else f"{offsets} * {stride}")
        return Place(" + ".join([pointer, *terms]), " & ".join(filter(None, masks)))

    def _along(self, axis: str, piece: Slice) -> str:
        """The identifier of the positions of a slice; the text of a single one that is not chosen among others."""
        if piece.before:
            return self._chosen(axis, piece)
        if piece.extent is None:
            return self.affine(piece.start)
        if piece.flat is not None:
            return self._counted(piece, piece.flat)
        return self.offsets(axis, piece.start, piece.extent, piece.step)

    def _counted(self, piece: Slice, flat: Flat) -> str:
        """The identifier of positions that are counted along an axis of two dimensions."""
        axis, extent = piece.axis, piece.extent or 1
        count = self._identifiers.of(("count", axis, flat, extent), f"{'first' if flat.first else 'second'}_{axis}")
        text = f"{self.offsets(axis, flat.start, extent)} {flat.operator} {flat.size}"
        self._block.define(count, f"{count} = {text}", self.variables(flat.start))
        begin, along = self.affine(piece.start), count if piece.step == 1 else f"{count} * {piece.step}"
        if begin == "0" and piece.step == 1:
            return count
        name = self._identifiers.of(("counted", piece.start, piece.step, axis, flat, extent), f"offs_{axis}")
        return self._define(name, along if begin == "0" else f"{begin} + {along}", piece)

    def _chosen(self, axis: str, piece: Slice) -> str:
        """The identifier of positions that are those of the first slice that applies."""
        text = self._along(axis, replace(piece, before=()))
        for b in reversed(piece.before):
            text = f"tl.where({self._along(axis, b.at)} < {b.size}, {self._along(axis, b.then)}, {text})"
        return self._define(self._identifiers.of(("chosen", axis, piece), f"chosen_{axis}"), text, piece)

    def _clamped(self, axis: str, piece: Slice, size: int) -> str:
        """The identifier of the positions of a slice, those outside a dimension of `size` being its first or last."""
        name = self._identifiers.of(("clamped", axis, piece, size), f"near_{axis}")
        positions = self._along(axis, piece)
        positions = f"tl.maximum({positions}, 0)" if self.precedes(piece) else positions
        positions = f"tl.minimum({positions}, {size - 1})" if self.exceeds(piece, size) else positions
        return self._define(name, positions, piece)

    def _define(self, name: str, text: str, piece: Slice) -> str:
        self._block.define(name, f"{name} = {text}", self._variables_of(piece))
        return name

    def _variables_of(self, piece: Slice) -> frozenset[str]:
        others = (self._variables_of(s) for b in piece.before for s in (b.at, b.then))
        flat = self.variables(piece.flat.start) if piece.flat else frozenset[str]()
        return self.variables(piece.start).union(flat, *others)

    def _varying(self, value: Affine) -> list[tuple[str, int]]:
        return [(name, c) for name, c in value.terms if self.extents[name] > 1]

    def _reach(self, buffer: Buffer, slices: tuple[Slice, ...]) -> int:
        """The largest offset that is computed, below 0 or above, masked lanes included."""
        first = last = 0
        for piece, stride in zip(slices, buffer.strides, strict=True):
            least, most = reach(piece, self.extents)
            first, last = first + least * stride, last + most * stride
        return max(-first, last)


def expand(axes: tuple[str, ...], target: tuple[str, ...]) -> str:
    """The subscript that gives a tensor with `axes` the rank of one with `target`: `[:, None]`; "" for equal axes."""
    if axes == target or not axes:
        return ""
    return "[" + ", ".join(":" if axis in axes else "None" for axis in target) + "]"
