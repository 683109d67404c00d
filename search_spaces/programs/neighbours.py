"""Loads of tiles with interleaved positions: neighbouring elements of a tensor are loaded together, each once.

Before:  a = load x[i.0*256 - 1 : +64 step 4]
         b = load x[i.0*256 + 2 : +64 step 4]
After:   x_0 = load x[i.0*256 - 4 : +256]; a = x_0[3::4]
         x_1 = load x[i.0*256 : +256];     b = x_1[2::4]

Other tiles that read these elements find them loaded, and threads load vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from search_spaces.programs.statements import Deinterleave, Load, Statement
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.names import Names

# The most elements that are loaded together for one position: a vector of 16 bytes of the narrowest types.
_MOST = 16


@dataclass
class Neighbours:
    """The loads of one kernel.

    `strides`: of the tensors whose neighbours are loaded together, by name; other loads are only shared. `known`: tiles
    by their load, whose name is the wanted one.
    """

    strides: Mapping[str, tuple[int, ...]]
    known: dict[Load, tuple[Tile, ...]] = field(default_factory=dict)

    def loaded(self, load: Load, names: Names, body: list[Statement]) -> Tile:
        """The tile of the load, still to be named: as wanted, or as the buffer."""
        wanted = load.dst.name or load.buffer
        whole, place, axis = self._whole(load)
        if whole not in self.known:
            dst = replace(whole.dst, name=names.fresh(wanted))
            body.append(replace(whole, dst=dst))
            self.known[whole] = (dst,)
            if axis:
                count = dst.extent(axis) // load.dst.extent(axis)
                parts = tuple(replace(load.dst, name=names.fresh(wanted)) for _ in range(count))
                body.append(Deinterleave(parts, dst.name, axis))
                self.known[whole] = parts
        return self.known[whole][place]

    def _whole(self, load: Load) -> tuple[Load, int, str]:
        """The whole load that contains it, its place in that, and the axis along which that is split, if any."""
        strides = self.strides.get(load.buffer, (0,) * len(load.slices))
        for d, (piece, stride) in enumerate(zip(load.slices, strides, strict=True)):
            if stride == 1 and piece.extent is not None and piece.step in _TURNS and not (piece.before or piece.flat):
                begin, place = divmod(piece.start.offset, piece.step)
                start = Affine(piece.start.terms, begin * piece.step)
                wide = Slice(start, piece.extent * piece.step, piece.axis)
                along = load.dst.axes.index(piece.axis)
                shape = (*load.dst.shape[:along], piece.extent * piece.step, *load.dst.shape[along + 1 :])
                slices = (*load.slices[:d], wide, *load.slices[d + 1 :])
                return replace(load, dst=replace(load.dst, shape=shape), slices=slices), place, piece.axis
        return load, 0, ""


# Tiles have powers of two of positions.
_TURNS = frozenset(2**n for n in range(1, _MOST.bit_length()))
