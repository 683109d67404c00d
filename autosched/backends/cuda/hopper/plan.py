"""Shared memory of a block of a warp-specialised contraction: the ring, tiles to be stored, barriers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autosched.backends.cuda.hopper.computed_rows import words_of_thread
from autosched.backends.cuda.hopper.extras import Extras
from autosched.backends.cuda.hopper.group_tiles import GroupTile
from autosched.backends.cuda.hopper.ring import RingPlan
from autosched.backends.cuda.hopper.shared_tiles import ALIGNMENT
from autosched.backends.cuda.resources import KEPT_REGISTERS
from autosched.backends.gpu.roles import refuse, warp_roles
from autosched.backends.gpu.warps import WARP, WARP_GROUP, WGMMA
from search_spaces.programs.addressing import joined
from search_spaces.programs.halos import HALO
from search_spaces.programs.im2col import IM2COL
from search_spaces.programs.roles.products import ProductRoles
from search_spaces.programs.statements import Fill, Load, Statement, Store, produced
from search_spaces.programs.tile_program import Kernel, TileProgram, loop_extents
from search_spaces.programs.tiles import Tile
from search_spaces.schedules.limits import Offers, Resources
from search_spaces.workloads.dtypes import dtype

# Offers besides Gluon's: rows of any number of warp groups, columns in multiples of 32, and
# twice that for clusters; as many accumulators as fit next to a thread's other registers. Registers of a dot besides
# its accumulators: as ptxas 12.6 to 13.5 count them.
OFFERS = Offers(
    tiles=(96, 160, 192, 224, 320, 384, 448, 512),
    groups=3,
    sums=192,
    integer_columns=WGMMA.widest,
    blocks=2,
    dot_registers=26,
    waits=True,
    walks=False,
    through_registers=False,
    batches=False,
    joins=False,
    merges=True,
    computes=True,
    kept_registers=KEPT_REGISTERS,
    streams=True,
    words=frozenset({IM2COL, HALO}),
)
BARRIER_BYTES = 8
BARRIERS_ALIGNMENT = 16
# Padding of the rows of a tile that threads exchange.
_PADDING_BYTES = 16
# Registers of a thread besides its accumulators.
_REGISTERS = 24


@dataclass(frozen=True)
class BlockPlan:
    """A kernel with its roles and the layout of its shared memory.

    `stores` and `loads`: tiles that the epilogue moves by descriptor, by the number of the statement there. A warp
    group has `slots` slots of `slot_bytes` for the pieces that it stores, and a place for all that it loads.
    """

    roles: ProductRoles
    ring: RingPlan
    stores: Mapping[int, GroupTile]
    loads: Mapping[int, GroupTile]

    @staticmethod
    def of(program: TileProgram, kernel: Kernel) -> BlockPlan:
        """Plan a kernel.

        Raises:
            CompileError: it is no contraction that has such roles (see `programs.roles.products`).
        """
        roles = warp_roles(program, kernel, OFFERS)
        if not isinstance(roles, ProductRoles):
            refuse(kernel, "its dots follow on other dots; expected a contraction")
        sums, tiles = roles.dot.dst.axes, _tiles(roles)
        stores, loads, extents = {}, {}, loop_extents(roles.finishing) | loop_extents(kernel)
        for number, s in enumerate(roles.epilogue):
            match s:
                case Store(via="descriptor", src=src, buffer=name):
                    stores[number] = GroupTile(tiles[src], sums, *joined(program.buffer(name), s.slices, extents))
                case Load(via="descriptor", dst=dst, buffer=name) if set(dst.axes) == {*sums}:
                    loads[number] = GroupTile(dst, sums, *joined(program.buffer(name), s.slices, extents))
        _check_registers(roles)
        ring = RingPlan.of(program, roles, extents)
        stores, loads = _by_pieces(stores), _by_pieces(loads)
        # Tiles that cannot be loaded in pieces are read by pointers.
        extras = tuple(s for number, s in enumerate(roles.epilogue) if number in loads and isinstance(s, Load))
        return BlockPlan(dataclasses.replace(roles, extras=extras), ring, stores, loads)

    @property
    def slots(self) -> int:
        """Two, since one piece is written while another is copied; one if the other warp group computes meanwhile."""
        return 1 if self.roles.alternating else min(2, max(1, sum(s.pieces for s in self.stores.values())))

    @property
    def slot_bytes(self) -> int:
        return max((s.piece.room for s in self.stores.values()), default=0)

    def extras(self, place: int) -> Extras:
        """The tiles loaded for the epilogue; the first group's are at byte `place` of shared memory."""
        return Extras(self.roles.groups, self.loads, place)

    @property
    def extra_bytes(self) -> int:
        """Bytes of these tiles for one warp group."""
        return self.extras(0).group_bytes

    @property
    def finishing(self) -> Kernel:
        """The epilogue of one warp group as a kernel, without the stores that are printed otherwise.

        TMA-loaded tiles are placeholders with the accumulator's layout. Before the epilogue are the statements that
        place a tile, the loop without its dots, and the initial values of the accumulators.
        """
        roles, body = self.roles, self._before
        for number, s in enumerate(roles.epilogue):
            if number in self.loads and isinstance(s, Load):
                body.append(Fill(s.dst, 0.0))
            elif number not in self.stores:
                body.append(dataclasses.replace(s, via="pointer") if isinstance(s, Load | Store) else s)
        launch = dataclasses.replace(roles.kernel.launch, num_warps=WARP_GROUP)
        return dataclasses.replace(roles.finishing, body=tuple(body), launch=launch)

    @property
    def _before(self) -> list[Statement]:
        roles = self.roles
        before = (*roles.counting, *roles.placing, *roles.share.before, roles.stepping)
        return [*before, *(Fill(t, 0.0) for t in roles.accumulators)]

    @property
    def finished(self) -> Sequence[Statement]:
        """The statements of the epilogue among those of `finishing`."""
        return self.finishing.body[len(self._before) :]

    @property
    def barriers(self) -> dict[str, int]:
        """Number of barriers of every kind."""
        roles = self.roles
        pairs = {"full": roles.operands.slots, "empty": roles.operands.slots}
        order = {"order": 2} if roles.alternating else {}
        extras = {"extras_full": roles.groups, "extras_empty": roles.groups} if self.loads else {}
        return pairs | order | extras

    def needs(self, program: TileProgram) -> Resources:
        """Estimated resources; a tile that threads may exchange counts as exchanged."""
        roles = self.roles
        moved = [s for s in self.finishing.body if isinstance(s, Load | Store)]
        tiles = _tiles(roles)
        exchanged = [
            _exchanged(s.dst if isinstance(s, Load) else tiles[s.src], program.buffer(s.buffer).dtype) for s in moved
        ]
        each = self.slots * self.slot_bytes + self.extra_bytes + max(exchanged, default=0)
        barriers = sum(self.barriers.values()) * BARRIER_BYTES + len(self.barriers) * BARRIERS_ALIGNMENT
        threads = roles.groups * WARP_GROUP * WARP
        sums = _sums(roles)
        shared = -(-self.ring.bytes // ALIGNMENT) * ALIGNMENT + roles.groups * each + barriers
        return Resources(shared, _REGISTERS + sums, threads)


def _tiles(roles: ProductRoles) -> dict[str, Tile]:
    """The tiles of one warp group in the epilogue, by name."""
    return {t.name: t for t in (*roles.accumulators, *(t for s in roles.epilogue for t in produced(s)))}


def _by_pieces(tiles: Mapping[int, GroupTile]) -> dict[int, GroupTile]:
    return {number: tile for number, tile in tiles.items() if tile.by_pieces}


def _check_registers(roles: ProductRoles) -> None:
    """Raises CompileError if the registers do not suffice.

    Accumulators and live values have to fit in a consumer's registers, and the operands of one wgmma in those that
    every thread is launched with, by which ptxas allocates.
    """
    if reason := OFFERS.why_too_many(
        WGMMA, _sums(roles), roles.columns, roles.groups, roles.kernel.launch.max_registers
    ):
        refuse(roles.kernel, reason)


def _sums(roles: ProductRoles) -> int:
    """Registers of a thread for accumulators, and for rows that it computes."""
    sums = sum(t.elements for t in (*roles.accumulators, *roles.partial)) // (WARP_GROUP * WARP)
    return sums + words_of_thread(roles)


def _exchanged(tile: Tile, element: str) -> int:
    """The most bytes of shared memory for an exchange of a tile, with padded rows in either order."""
    if len(tile.axes) < 2:
        return 0
    return tile.elements * dtype(element).bytes + max(tile.shape) * _PADDING_BYTES
