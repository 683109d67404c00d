"""Fingerprints of kernels: a hash of everything that is compiled and launched, stored in each record.

Two versions of autosched that give a schedule the same fingerprint make the same kernel of it, so that measurements of
one are valid for the other.
"""

from __future__ import annotations

import dataclasses
import hashlib

from search_spaces import TileProgram
from search_spaces.programs.statements import Load, Store, statements
from search_spaces.programs.tile_program import Buffer, Kernel, Launch
from search_spaces.programs.tiles import Slice

# Starts of the lines of the comment that printers place at the top: Triton's, LLVM's and CUDA's. It shows the schedule
# and the loop nest, and its wording may change while the code stays.
_COMMENT = ("#", ";", "//")
# 64 bits: among a million kernels two share them with a chance of 3e-8.
_DIGITS = 16


def source_fingerprint(source: str, program: TileProgram) -> str:
    """16 hexadecimal digits over the source text that was printed for a program, and over its launch.

    The comment at the top does not count. Everything that the text leaves to the compiler and the launcher does: warps
    and stages, the size of the grid, tiles of tensor descriptors, buffers, and which of these are zeroed
    or prepared.
    """
    code = source[_comment_end(source) :]
    kernels = [(k.grid.tiles, k.grid.programs, _said(k.launch), _described_tiles(k)) for k in program.kernels]
    buffers = [_said(buffer) for buffer in program.buffers]
    prepared = f", {program.prepared!r}" if program.prepared else ""
    parts = f"({_quoted(code)}, {kernels!r}, {buffers!r}, {program.zeroed!r}{prepared})"
    return hashlib.sha256(parts.encode()).hexdigest()[:_DIGITS]


def _quoted(code: str) -> str:
    """`repr(code)`, which takes 0.3 ms for 100 kB; most code is quoted in a third of that."""
    if code.isascii() and "'" not in code:
        return f"'{code.encode('unicode_escape').decode()}'"
    return repr(code)


def _comment_end(source: str) -> int:
    """Start of the first line that is no comment."""
    start = 0
    while source.startswith(_COMMENT, start):
        line_end = source.find("\n", start)
        if line_end < 0:
            return len(source)
        start = line_end + 1
    return start


def _described_tiles(kernel: Kernel) -> list[tuple[str, tuple[object, ...]]]:
    """The buffers that are read or written by tensor descriptors, with the extents of the tiles, and the sides of those
    that run along several dimensions.
    """
    moves = (s for s in statements(kernel.body) if isinstance(s, Load | Store) and s.via != "pointer")
    return list(dict.fromkeys((s.buffer, tuple(map(_described, s.slices))) for s in moves))


def _described(piece: Slice) -> object:
    return piece.extent if piece.flat is None else (piece.extent, piece.flat.size)


def _said(value: Buffer | Launch) -> list[tuple[str, object]]:
    """The fields that are not zero or empty: a new field that is empty here leaves fingerprints as they were."""
    named = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return [(name, content) for name, content in named if content]
