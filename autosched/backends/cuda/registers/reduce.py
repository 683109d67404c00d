"""Folds along an axis of a tile: of a thread's registers, then of lanes, then of warps through shared memory.

sum[r_m] = fold_sum<8, 1>(x + r_m * 8);                   by halves, so that additions do not wait for each other
sum[r_m] = lanes_sum<1, 32>(sum[r_m]);                    every lane has the result
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autosched.backends.cuda.language import operators
from autosched.backends.cuda.language.index import scaled, sum_of
from autosched.backends.cuda.language.types import element_bytes, held_dtype, held_type
from autosched.backends.cuda.registers.layouts import Digit, registers, simplified, thread_digit
from autosched.backends.cuda.registers.positions import Positions
from autosched.backends.cuda.registers.shared import SharedMemory
from autosched.backends.cuda.registers.tiles import Held, Tiles
from search_spaces.programs.tiles import Tile


class Folds:
    """Prints the reductions of one kernel. `used`: the operators, with their element types."""

    def __init__(self, tiles: Tiles, positions: Positions, shared: SharedMemory, warps: int) -> None:
        self._tiles = tiles
        self._positions = positions
        self._shared = shared
        self._warps = warps
        self.used: set[tuple[str, str]] = set()

    def fold(self, operator: str, source: Held, axis: str, dst: Held) -> None:
        """Set `dst`, which has the source's layout and type without the axis, to the fold along it."""
        self.used.add((operator, held_dtype(dst.tile.dtype)))
        spread = source.layout[axis]
        self._registers(operator, source, axis, dst)
        for digit in simplified(spread):
            if digit.kind == "lane":
                at = self._tiles.at(dst.tile.axes, dst.layout)
                element = dst.element(at)
                line = f"{element} = lanes_{operator}<{digit.place}, {digit.place * digit.size}>({element});"
                self._tiles.each(dst.layout, dst.tile.axes, [line])
        warps = [d for d in simplified(spread) if d.kind == "warp"]
        if warps:
            self._across_warps(operator, warps, [d for d in simplified(spread) if d.kind == "lane"], dst)

    def _registers(self, operator: str, source: Held, axis: str, dst: Held) -> None:
        count = registers(source.layout[axis])
        at = {**self._tiles.at(source.tile.axes, source.layout), axis: "0"}
        if source.elements == 1 or count == 1:
            line = f"{dst.element(at)} = {source.element(at)};"
        else:
            line = f"{dst.element(at)} = fold_{operator}<{count}, {source.apart(axis)}>({source.address(at)});"
        self._tiles.each(dst.layout, dst.tile.axes, [line])

    def _across_warps(self, operator: str, warps: Sequence[Digit], lanes: Sequence[Digit], dst: Held) -> None:
        """Every warp writes its part; all threads fold all parts."""
        axes, tile = dst.tile.axes, dst.tile
        parts = math.prod(d.size for d in warps)
        pointer = f"reinterpret_cast<{held_type(tile.dtype)}*>"
        pointer += f"({self._shared.scratch(parts * tile.elements * element_bytes(held_dtype(tile.dtype)))})"
        place = self._row_major(tile, {x: self._positions.within(x, dst.layout[x]) for x in axes})
        number, weight = list[str](), 1
        for d in warps:
            number.append(scaled(thread_digit(d, self._warps), weight))
            weight *= d.size
        element = dst.element(self._tiles.at(axes, dst.layout))
        own = sum_of(scaled(sum_of(*number), tile.elements), place)
        write = f"{pointer}[{own}] = {element};"
        first = " && ".join(f"{thread_digit(d, self._warps)} == 0" for d in lanes)
        lines = [f"if ({first}) {write}" if first else write]
        self._tiles.each(dst.layout, axes, lines)
        self._shared.meet()
        line = f"{element} = fold_{operator}<{parts}, {tile.elements}>({pointer} + {place});"
        self._tiles.each(dst.layout, axes, [line])

    @staticmethod
    def _row_major(tile: Tile, positions: Mapping[str, str]) -> str:
        parts, apart = [], 1
        for axis in reversed(tile.axes):
            parts.append(scaled(positions[axis], apart))
            apart *= tile.extent(axis)
        return sum_of(*reversed(parts))

    def functions(self) -> list[str]:
        """The device functions that were used."""
        texts = []
        for operator in sorted({operator for operator, _ in self.used}):
            joined = {held: operators.fold(operator, "a", "b", held) for o, held in sorted(self.used) if o == operator}
            texts += [_joining(operator, held, text) for held, text in joined.items()]
            texts.append(_FOLDS.replace("OP", operator))
        return texts


def _joining(operator: str, held: str, text: str) -> str:
    kind = held_type(held)
    return f"__device__ __forceinline__ {kind} join_{operator}({kind} a, {kind} b) {{ return {text}; }}\n"


_FOLDS = """\
template <int count, int apart, typename T>
__device__ __forceinline__ T fold_OP(const T* x) {
    if constexpr (count == 1) return x[0];
    else return join_OP(fold_OP<count / 2, apart>(x), fold_OP<count - count / 2, apart>(x + count / 2 * apart));
}
template <int first, int end, typename T>
__device__ __forceinline__ T lanes_OP(T x) {
    #pragma unroll
    for (int apart = first; apart < end; apart *= 2) x = join_OP(x, __shfl_xor_sync(0xffffffffu, x, apart));
    return x;
}
"""
