"""Operands of a register-blocked dot: packed into panels in scratch memory, or read where they are.

An operand tile has two axes, the reduction axis and its own (m for a, n for b). A `Panel` is what one register tile
reads of it: `width` positions of its own axis, over the whole reduction tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from autosched.backends.llvm.ir.code import Code
from autosched.backends.llvm.ir.text import IRValue
from autosched.backends.llvm.ir.values import index, minus, poison, smaller, transpose_4x4
from search_spaces.programs.addressing import Address, Dimension
from search_spaces.programs.statements import Load, View
from search_spaces.programs.tile_program import Buffer
from search_spaces.programs.tiles import Panels
from search_spaces.workloads.expressions.affine import Affine

# Elements between packed rows beyond their length, so that they do not all start in one cache set.
ROW_PADDING = 16


@dataclass(frozen=True)
class Panel:
    """Element (x, k) of a panel is at `base + x * own_stride + k * reduction_stride`, stored as `dtype`.

    `valid` positions of the panel exist; the others are outside the buffer and must not be accessed, unless it is
    `packed`.
    """

    base: IRValue
    own_stride: int
    reduction_stride: int
    dtype: str
    valid: int
    packed: bool


@dataclass(frozen=True)
class OperandTile:
    """A loaded operand tile: `packed` is where its panels are, or None when it is read in place."""

    load: Load
    place: Address
    own: str
    reduction: str
    packed: IRValue | None

    @property
    def steps(self) -> int:
        """Reduction positions of the tile."""
        return self.load.dst.extent(self.reduction)

    @property
    def buffer(self) -> Buffer:
        return self.place.buffer

    def along(self, axis: str) -> Dimension:
        """The buffer dimension of a tile axis."""
        return next(d for d in self.place.dimensions if d.axis == axis)

    @property
    def begin(self) -> Affine:
        """The first position of its own axis, of `size` in the buffer."""
        return self.along(self.own).slice.start

    @property
    def size(self) -> int:
        return self.along(self.own).size

    @property
    def own_stride(self) -> int:
        """Of a single position there is none, and it may as well be that of neighbours."""
        return 1 if self.size == 1 else self.along(self.own).stride

    @property
    def reduction_stride(self) -> int:
        return self.along(self.reduction).stride

    def remaining_steps(self, code: Code) -> IRValue:
        """Number of reduction positions of this tile that are inside the buffer; none if that is not positive."""
        return _remaining(code, self.along(self.reduction), self.steps)

    def shortest_steps(self, code: Code) -> int:
        """The fewest reduction positions that any tile of the loop has."""
        d = self.along(self.reduction)
        return 0 if d.slice.bound else min(self.steps, d.size - d.slice.start.maximum(code.extents))


def _remaining(code: Code, d: Dimension, extent: int) -> IRValue:
    """Number of positions of a slice, of `extent`, that are inside the buffer, and within the slice's bound."""
    inside, bound = code.remaining(d.slice.start, extent, d.size), d.slice.bound
    return smaller(code.b, inside, code.remaining(bound.start, extent, bound.size)) if bound else inside


def operand(code: Code, load: Load, reduction: str) -> OperandTile:
    """Make a loaded tile usable as an operand, copying it now when it is to be packed."""
    own = next(x for x in load.dst.axes if x != reduction)
    found = OperandTile(load, code.place(load.buffer, load.slices), own, reduction, None)
    if load.panels is None:
        return found
    result = replace(found, packed=code.take_scratch(_packed_elements(load, own, reduction, load.panels)))
    steps = result.remaining_steps(code)
    if result.shortest_steps(code):
        _pack(code, result, load.panels, steps)
    else:
        with code.when(code.b.icmp_signed(">", steps, index(0)), "pack"):
            _pack(code, result, load.panels, steps)
    return result


def panel(code: Code, source: OperandTile, view: View | None, width: int) -> Panel:
    """The panel that a view cuts from an operand (the operand's only one without a view)."""
    offset = next(p.start for p in view.slices if p.axis == source.own) if view else Affine()
    valid = min(width, source.size)
    panels = source.load.panels
    if panels is None or source.packed is None:
        base = _address_in_place(code, source, source.begin + offset, width)
        return Panel(base, source.own_stride, source.reduction_stride, source.buffer.dtype, valid, packed=False)
    number = Affine(tuple((v, c // width) for v, c in offset.terms))
    start = code.scaled(code.affine(number), _panel_elements(source, panels)) if number.terms else 0
    base = code.address(source.packed, start)
    if panels.interleaved:
        return Panel(base, 1, width, "float32", valid, packed=True)
    return Panel(base, source.steps + ROW_PADDING, 1, "float32", valid, packed=True)


def _packed_elements(load: Load, own: str, reduction: str, panels: Panels) -> int:
    per_row = load.dst.extent(reduction) + (0 if panels.interleaved else ROW_PADDING)
    return load.dst.extent(own) * per_row


def _panel_elements(source: OperandTile, panels: Panels) -> int:
    per_row = source.steps + (0 if panels.interleaved else ROW_PADDING)
    return panels.width * per_row


def _address_in_place(code: Code, source: OperandTile, own_start: Affine, width: int) -> IRValue:
    """The address of element (own_start, 0) of the operand in its buffer; own_start moved back at the edge."""

    def start(d: Dimension) -> IRValue:
        return code.start(own_start, width, d.size) if d.axis == source.own else code.affine(d.slice.start)

    offset = code.offset(source.place, start)
    return code.address(code.base[source.load.buffer], offset, source.buffer.dtype)


def _pack(code: Code, source: OperandTile, panels: Panels, steps: IRValue) -> None:
    """Copy so many steps of the tile to its panels.

    Rows of memory in order if they run along the panels, else panel by panel.
    """
    kind = "panels" if panels.interleaved else "padded rows"
    code.b.comment(f"pack {source.load.buffer} in {kind} of {panels.width} along {panels.axis}")
    valid = min(panels.width, source.size)
    if panels.interleaved and (source.own_stride == 1 or source.reduction_stride != 1):
        with code.loop(steps, "pack.k") as k, _each_panel(code, source, panels) as (begin, target):
            row = code.address(begin, code.scaled(k, source.reduction_stride), source.buffer.dtype)
            _copy_step(code, source, row, code.address(target, code.scaled(k, panels.width)), panels.width, valid)
        return
    with _each_panel(code, source, panels) as (begin, target):
        if panels.interleaved:
            _transpose(code, source, begin, target, steps, panels.width, valid)
        else:
            _copy_rows(code, source, begin, target, steps, panels.width)


@contextmanager
def _each_panel(code: Code, source: OperandTile, panels: Panels) -> Iterator[tuple[IRValue, IRValue]]:
    """Loop over the panels of the tile that exist, with the address of each in the buffer and of its packed copy."""
    extent = source.load.dst.extent(source.own)
    present = _remaining(code, source.along(source.own), extent)
    variable = f"{source.load.dst.name}.panel"
    assert source.packed is not None
    with code.loop(present, variable, panels.width) as position:
        code.variables[variable] = position
        # The panels of this tile reach as far as the tile does.
        inside = replace(code, extents={**code.extents, variable: extent})
        begin = _address_in_place(inside, source, source.begin + Affine.of((variable, 1)), panels.width)
        per_position = _panel_elements(source, panels) // panels.width
        yield begin, code.address(source.packed, code.scaled(position, per_position))
    del code.variables[variable]


def _copy_step(code: Code, source: OperandTile, row: IRValue, out: IRValue, width: int, valid: int) -> None:
    """One reduction step of one panel: neighbours in memory, or elements that are loaded one by one."""
    dtype, lanes, stride = source.buffer.dtype, code.lanes, source.own_stride
    for at in range(0, width, lanes):
        values, address = code.zeros(lanes), code.address(row, at * stride, dtype)
        if valid > at and stride == 1:
            values = code.load(address, dtype, lanes, code.mask(valid - at))
        elif valid > at:
            values = code.load_apart(address, stride, dtype, valid - at)
        code.store(values, code.address(out, at), "float32", lanes, code.mask(width - at))


def _copy_rows(code: Code, source: OperandTile, begin: IRValue, target: IRValue, steps: IRValue, width: int) -> None:
    """Reduction axis contiguous, rows kept: `width` copies of whole vectors side by side."""
    own_stride = source.own_stride
    dtype = source.buffer.dtype
    for k, lanes in _vectors_of_steps(code, source, steps):
        here, there = code.address(begin, k, dtype), code.address(target, k)
        rows = [code.load(code.address(here, r * own_stride, dtype), dtype, lanes) for r in range(width)]
        for r, values in enumerate(rows):
            code.store(values, code.address(there, r * (source.steps + ROW_PADDING)), "float32", lanes)


def _transpose(
    code: Code, source: OperandTile, begin: IRValue, target: IRValue, steps: IRValue, width: int, valid: int
) -> None:
    """Reduction axis contiguous, panels wanted: square blocks are transposed in registers."""
    own_stride = source.own_stride
    dtype = source.buffer.dtype
    for k, lanes in _vectors_of_steps(code, source, steps):
        here, there = code.address(begin, k, dtype), code.address(target, code.scaled(k, width))
        for group in range(0, width, code.lanes):
            present = min(code.lanes, valid - group)
            rows = [
                code.load(code.address(here, (group + r) * own_stride, dtype), dtype, lanes) for r in range(present)
            ]
            if lanes == 1:
                for r, value in enumerate(rows):
                    code.store(value, code.address(there, group + r), "float32", 1)
                continue
            columns = transpose_4x4(code.b, rows + [poison(lanes)] * (lanes - len(rows)), lanes)
            for step, column in enumerate(columns):
                out = code.address(there, step * width + group)
                code.store(column, out, "float32", lanes, code.mask(width - group))


def _vectors_of_steps(code: Code, source: OperandTile, steps: IRValue) -> Iterator[tuple[IRValue, int]]:
    """Loops over the reduction steps by whole vectors; the last one is moved back to end with the tile.

    Yields the first step and the number of lanes for what is printed then: 1 when some tile is shorter than a vector.
    Where data says how long a tile is, both are printed.
    """
    shortest, lanes = source.shortest_steps(code), code.lanes
    if shortest:
        with _steps_by(code, steps, lanes if shortest >= lanes else 1) as found:
            yield found
        return
    with code.choice(code.b.icmp_signed(">=", steps, index(lanes)), "vectors") as otherwise:
        with _steps_by(code, steps, lanes) as found:
            yield found
        otherwise()
        with _steps_by(code, steps, 1) as found:
            yield found


@contextmanager
def _steps_by(code: Code, steps: IRValue, lanes: int) -> Iterator[tuple[IRValue, int]]:
    with code.loop(steps, "pack.k", lanes) as k:
        if lanes > 1 and (steps.number is None or steps.number % lanes):
            k = smaller(code.b, k, minus(code.b, steps, index(lanes)))
        yield k, lanes
