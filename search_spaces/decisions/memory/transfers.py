"""Transfers: the way that tiles of a tensor move between memory and a program.

Before:  store out[m.0*128 : +128, n.0*128 : +128] = y               an address for every element
After (store=descriptor):  the same by a descriptor                  one instruction moves the tile
       (a_load=prepared_k):  of a copy of a constant that runs along k, made once and not at a call

Before:  load x[m // 14, m % 14 + s.0 - 1, c.0*64 : +64] else 0      of 128 positions m, each with a guard
After (a_load=im2col):     the same by an im2col descriptor          one instruction counts them, and 0 is outside

Before:  for tap in 9: a = load x[…] of the pixels under the tap      nine times the same pixels, but for an edge
After (a_load=halo):       a box of all of them, once for nine taps     `programs.halos`

Tensor maps and TMA (CUDA), tensor descriptors (Triton), `cute::copy` with TMA atoms (CUTLASS); implicit GEMM with
im2col tensor maps (`KernelImplicitTmaWarpSpecializedSm90`).
"""

from __future__ import annotations

from dataclasses import replace

from search_spaces.decisions.decision import Decision, each_body
from search_spaces.programs.halos import HALO
from search_spaces.programs.statements import Statement, Store
from search_spaces.programs.tile_program import TileProgram
from search_spaces.schedules.knobs import Choice, KnobValue, Values

NAMES = ("store", "a_load", "b_load", "rows_load", "walked_load", "epilogue_load")
WHERE_NOT = "Where a device has no descriptors; for rows and points, whose whole vectors pointers move as well."


def loads(name: str, ways: tuple[KnobValue, ...]) -> Decision:
    """Way to load tiles of some operands: directly, or from copies that descriptors can address.

    The base program is made with it, since a copy is a kernel of its own, and pointers may reach beyond the end.
    """
    return Decision(Choice(name, ways, ordered=False))


def is_by_pointers(way: KnobValue) -> bool:
    """True if a way to load tiles computes an address for every element, of the tensor, of a copy or of a halo."""
    return way == HALO or str(way).endswith("pointer")


def stores(ways: tuple[KnobValue, ...]) -> Decision:
    """Way to store the output tiles of a kernel."""
    return Decision(Choice("store", ways), _stored)


def _stored(program: TileProgram, values: Values) -> TileProgram:
    if values["store"] == "pointer":
        return program
    return each_body(program, _by_descriptor)


def _by_descriptor(s: Statement) -> Statement:
    return replace(s, via="descriptor") if isinstance(s, Store) else s
