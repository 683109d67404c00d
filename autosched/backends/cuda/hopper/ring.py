"""The ring of slots in shared memory that the producer fills: places and tensor maps of all operands."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autosched.backends.backend import CompileError
from autosched.backends.cuda.hopper.shared_tiles import SharedOperand, SharedTile
from autosched.backends.cuda.language.index import Indexing, grouped, scaled, sum_of
from autosched.backends.gpu.arguments import described, loading_descriptor
from autosched.backends.gpu.kernel import TensorMap, Window
from autosched.backends.gpu.roles import refuse
from search_spaces.devices.architectures import TMA
from search_spaces.errors import UnmatchedError
from search_spaces.programs.addressing import joined
from search_spaces.programs.im2col import Place, im2col_tile
from search_spaces.programs.roles.halves import BLOCK, halved
from search_spaces.programs.roles.products import ProductRoles
from search_spaces.programs.roles.requests import k_major
from search_spaces.programs.statements import Load
from search_spaces.programs.tile_program import Buffer, TileProgram
from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.expressions.affine import Affine


@dataclass(frozen=True)
class RingOperand:
    """An operand in a slot, `place` bytes from the start of the slot.

    `load`: this block's load of it; blocks of a cluster that share it load equal `shares`, for all.
    """

    load: Load
    operand: SharedOperand
    place: int
    shares: int
    map: TensorMap
    first: tuple[Place, ...]
    taps: tuple[Affine, ...] = ()

    def loads(self, indexing: Indexing) -> Iterator[tuple[str, list[str]]]:
        """Place in the slot, coordinates in the tensor and distances of taps, innermost first, of every piece."""
        tile = self.operand.tile
        starts = [_coordinate(p, indexing) for p in reversed(self.first)]
        taps = [indexing.affine(x) for x in reversed(self.taps)]
        own = scaled(indexing.variable(BLOCK), tile.piece_bytes // self.shares) if self.shares > 1 else "0"
        for piece in range(tile.pieces):
            place = sum_of(str(self.place + piece * tile.piece_bytes), own)
            yield place, [sum_of(starts[0], str(piece * tile.row)), *starts[1:], *taps]


@dataclass(frozen=True)
class RingPlan:
    """Slots of all operands, by the name of their tiles."""

    operands: dict[str, RingOperand]
    slot_bytes: int
    stages: int

    @staticmethod
    def of(program: TileProgram, roles: ProductRoles, extents: Mapping[str, int]) -> RingPlan:
        """Assign places to the operands; `extents`: of the variables.

        Raises:
            CompileError: the hardware cannot load an operand in this way, or read it.
        """
        place = 0
        operands = {}
        for load in roles.loads:
            found = _operand(program, roles, load, place, extents)
            operands[load.dst.name] = found
            place += found.operand.tile.room
        return RingPlan(operands, place, roles.stages)

    def check_directions(self, roles: ProductRoles) -> None:
        """Raises CompileError if dots of an operand's type cannot read its direction."""
        for o in self.operands.values():
            if not o.operand.along_k and o.operand.element_bytes != 2:
                refuse(roles.kernel, f"{o.load.buffer} does not run along {roles.dot.axis}; {o.load.dst.dtype} has to")

    @property
    def bytes(self) -> int:
        return self.slot_bytes * self.stages

    @property
    def expected(self) -> int:
        """Bytes that arrive in a slot."""
        return sum(o.operand.tile.bytes for o in self.operands.values())


def _operand(
    program: TileProgram, roles: ProductRoles, load: Load, place: int, extents: Mapping[str, int]
) -> RingOperand:
    dot, buffer = roles.dot, program.buffer(load.buffer)
    side = dot.dst.axes.index(next(x for x in load.dst.axes if x != dot.axis))
    positions, depth = roles.block_shape[side], load.dst.extent(dot.axis)
    operand = SharedOperand(positions, depth, dtype(load.dst.dtype).bytes, k_major(load, dot))
    tile = operand.tile
    if not tile.row_bytes:
        rows = f"rows of {tile.neighbours} {load.dst.dtype} of {load.buffer}"
        refuse(roles.kernel, f"{rows}; expected multiples of 32 bytes")
    own, shares = load, 1
    if roles.blocks > 1 and dot.dst.axes[side] == roles.cut_axis:
        own = _part(load, roles.cut_axis, roles.cut_size)
    elif roles.blocks > 1:
        shares = roles.blocks
        own = _part(load, load.dst.axes[0], tile.lines // shares)
    kind = _windowed if load.via == "im2col" else _boxed
    made, first, taps = kind(buffer, own, tile, extents)
    return RingOperand(own, operand, place, shares, made, first, taps)


# The map of a piece of a tile, the place of the first piece, and the distances of taps.
_Copied = tuple[TensorMap, tuple[Place, ...], tuple[Affine, ...]]


def _boxed(buffer: Buffer, load: Load, tile: SharedTile, extents: Mapping[str, int]) -> _Copied:
    buffer, slices = joined(buffer, load.slices, extents)
    found = loading_descriptor(buffer, _piece(dataclasses.replace(load, slices=slices), tile.row), extents)
    made = TensorMap(buffer.name, buffer.dtype, found.shape, found.strides, found.block, tile.swizzle, False)
    return made, tuple(Place(p.start) for p in described(buffer, slices)), ()


def _windowed(buffer: Buffer, load: Load, tile: SharedTile, extents: Mapping[str, int]) -> _Copied:
    try:
        found = im2col_tile(buffer, _piece(load, tile.row), extents, TMA)
    except UnmatchedError as why:
        raise CompileError(f"load of {load.buffer}: {why}") from None
    window, box = Window(found.lower, found.upper, found.steps), (found.pixels, found.channels)
    made = TensorMap(buffer.name, buffer.dtype, found.shape, found.strides, box, tile.swizzle, False, window)
    return made, found.first, found.taps


def _part(load: Load, axis: str, size: int) -> Load:
    """The load of one block of a cluster: `size` positions along an axis."""
    (own,) = halved((load,), axis, size, BLOCK)
    assert isinstance(own, Load)
    return own


def _piece(load: Load, row: int) -> Load:
    """The load of one piece of a tile: rows of `row` elements."""
    *outer, last = load.slices
    return dataclasses.replace(load, slices=(*outer, dataclasses.replace(last, extent=row)))


def _coordinate(place: Place, indexing: Indexing) -> str:
    start = indexing.affine(place.start)
    if place.digit is None:
        return start
    number = indexing.affine(place.digit.start)
    digit = "0" if number == "0" else f"({grouped(number)} {place.digit.text('/')})"
    return sum_of(scaled(digit, place.step), start).replace("+ -", "- ")
