"""The parts of a contraction's kernel, of which the roles of its warps are made.

acc = 0                                 sums
s = load …                              before: what computed operands need, and no iteration changes
for k.0 …:
  a = load …; b = load …                operands
  a = f(a, …)                           making: computed operands, of loaded ones and of others
  s = load …                            scaling: what does not need the dots
  part = 0; part += dot(a, b)           dots
  acc = acc + part * s                  promotion: what follows on the dots
store out_tile = epilogue(acc)          epilogue
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from search_spaces.programs.roles.halves import halved, tile_part
from search_spaces.programs.roles.requests import check_load, refuse
from search_spaces.programs.statements import (
    Dot,
    Fill,
    For,
    Gather,
    Interleave,
    Let,
    Load,
    Map,
    Position,
    Split,
    Statement,
    Store,
    produced,
    read,
)
from search_spaces.programs.tile_program import Kernel
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.workloads.dtypes import is_promoted
from search_spaces.workloads.names import Names


@dataclass(frozen=True)
class ProductParts:
    """The parts of a kernel.

    `counting`: the statements that count the live tiles; `placing`: those that place one. `sums`: the accumulators of
    a tile, which start from 0. With a `promotion` the dots of an iteration have accumulators of their own, which start
    from 0 and are added to `sums` by it; it reads what `scaling` computes. Without one, the dots add to `sums`.
    `making`: the statements that compute operands of the dots from `operands`, and the loads that these read.
    """

    counting: tuple[Statement, ...]
    placing: tuple[Statement, ...]
    sums: tuple[Tile, ...]
    before: tuple[Statement, ...]
    loop: For
    operands: tuple[Load, ...]
    making: tuple[Statement, ...]
    scaling: tuple[Statement, ...]
    dots: tuple[Dot, ...]
    promotion: tuple[Statement, ...]
    epilogue: tuple[Statement, ...]

    @staticmethod
    def of(kernel: Kernel) -> ProductParts:
        """The parts of a kernel of this form; partial sums that tensor cores would keep in fewer bits are promoted.

        Raises:
            UnmatchedError: the kernel has another form.
        """
        first = max((n for n, s in enumerate(kernel.body, 1) if isinstance(s, Let)), default=0)
        counted = next(
            (n for n, s in enumerate(kernel.body, 1) if isinstance(s, Let) and s.variable == kernel.grid.live), 0
        )
        counting, placing, body = kernel.body[:counted], kernel.body[counted:first], kernel.body[first:]
        if tile := next((t for s in (*counting, *placing) for t in produced(s) if t.axes), None):
            refuse(kernel, f"{tile} comes before a variable bound to data; expected single numbers")
        fills = tuple(s for s in itertools.takewhile(lambda s: isinstance(s, Fill), body) if isinstance(s, Fill))
        rest = body[len(fills) :]
        before = tuple(itertools.takewhile(_is_computed, rest))
        match rest[len(before) :]:
            case (For() as loop, *epilogue) if fills:
                _check_around(kernel, fills, loop, epilogue)
                found = _of_loop(kernel, loop, tuple(f.dst for f in fills))
                if before and not found.making:
                    refuse(kernel, "its loop has something before it; expected that where operands are computed")
                found = replace(found, counting=counting, placing=placing, before=before, epilogue=tuple(epilogue))
                return found._promoted()
            case _:
                refuse(kernel, "expected an accumulator filled with 0, one loop, and an epilogue")

    def halved(self, axis: str, size: int, part: str) -> ProductParts:
        """The parts for `size` positions of the axis of a tile, from `part * size` on."""
        parts = (self.before, self.making, self.scaling, self.dots, self.promotion, self.epilogue)
        before, making, scaling, dots, promotion, epilogue = (halved(x, axis, size, part) for x in parts)
        sums = tuple(tile_part(t, axis, size) for t in self.sums)
        own = tuple(s for s in dots if isinstance(s, Dot))
        made = replace(self, sums=sums, before=before, making=making, scaling=scaling, dots=own)
        return replace(made, promotion=promotion, epilogue=epilogue)

    @property
    def multiplied(self) -> str:
        """The element type of the first dot's operands."""
        made = {t.name: t for s in (*self.operands, *self.making) for t in produced(s)}
        return made[self.dots[0].a].dtype

    def _promoted(self) -> ProductParts:
        """The parts with accumulators of an iteration, if sums have to be in float32.

        Before: acc += dot(a, b)              After: part = 0; part += dot(a, b); acc = acc + part
        """
        if self.promotion or not is_promoted(self.multiplied, self.dots[0].precision):
            return self
        names = Names({t.name for s in (*self.loop.body, *self.epilogue) for t in produced(s)})
        partial = [replace(d.dst, name=names.fresh("partial")) for d in self.dots]
        dots = tuple(replace(d, dst=tile) for d, tile in zip(self.dots, partial, strict=True))
        added = (Map(acc, "add", (acc.name, tile.name)) for acc, tile in zip(self.sums, partial, strict=True))
        return replace(self, dots=dots, promotion=tuple(added))


def _check_around(kernel: Kernel, fills: Sequence[Fill], loop: For, epilogue: Sequence[Statement]) -> None:
    if loop.marks:
        refuse(kernel, f"{loop.variable} makes the iterations that {loop.marks} marks; expected all of them")
    if other := next((f for f in fills if f.value != 0.0), None):
        refuse(kernel, f"the accumulator {other.dst.name} starts as something else than 0")
    for s in epilogue:
        if not isinstance(s, Load | Gather | Position | Map | Fill | Split | Store):
            refuse(kernel, f"its epilogue has a {type(s).__name__}; expected Load, Map, Split or Store")
        if isinstance(s, Load) and s.via == "descriptor":
            check_load(kernel, s)
        if isinstance(s, Store) and s.atomic:
            refuse(kernel, f"it adds to {s.buffer} atomically; expected plain stores")


def _of_loop(kernel: Kernel, loop: For, sums: tuple[Tile, ...]) -> ProductParts:
    dots = tuple(s for s in loop.body if isinstance(s, Dot))
    multiplied = {x for d in dots for x in (d.a, d.b)}
    making = _making(loop.body, multiplied)
    needed = multiplied | {x for s in making for x in read(s)}
    operands = tuple(
        s
        for s in loop.body
        if isinstance(s, Load) and (s.dst.name in multiplied or (s.dst.name in needed and s.via != "pointer"))
    )
    found = {t.name for s in (*operands, *making) for t in produced(s)}
    if not dots or not multiplied <= found:
        refuse(kernel, "expected a loop that loads two operands and adds their dot, or several")
    for load in operands:
        if load.via == "pointer":
            refuse(kernel, f"{load.buffer} is loaded by pointers; expected descriptors")
        if load.slices[-1].flat and not _is_one_number(load.slices):
            refuse(kernel, f"rows of {load.buffer} in {load.slices[-1]}; expected rows of a tile")
        check_load(kernel, load)
    making = tuple(s for s in making if s not in operands)
    rest = [s for s in loop.body if s not in (*operands, *dots, *making)]
    scaling, promotion = _beside(kernel, rest, dots)
    summed = [d.dst.name for d in dots]
    promoted = {t.name for s in promotion for t in produced(s)}
    names = [t.name for t in sums]
    if not {*names} <= promoted if promotion else names != summed:
        refuse(kernel, f"sums {', '.join(names)} start from 0, and dots add to {', '.join(summed)}; expected the same")
    return ProductParts((), (), sums, (), loop, operands, making, scaling, dots, promotion, ())


def _is_computed(s: Statement) -> bool:
    """True for what a group of warps does by itself: loads by pointers, positions and maps."""
    return isinstance(s, Map | Position) or (isinstance(s, Load) and s.via == "pointer")


def _is_one_number(slices: Sequence[Slice]) -> bool:
    """True if the last two dimensions are digits of one number, as dimensions that descriptors join."""
    outer, inner = (piece.flat for piece in slices[-2:])
    return outer is not None and inner is not None and outer.within(inner) is not None


def _making(body: Sequence[Statement], multiplied: Collection[str]) -> tuple[Statement, ...]:
    """The statements of a body that compute what is multiplied, and the loads that they read, in order."""
    needed, found = {*multiplied}, list[Statement]()
    for s in reversed(body):
        if isinstance(s, Map | Interleave | Position) and s.dst.name in needed:
            needed |= {*read(s)}
            found.append(s)
        elif isinstance(s, Load) and s.dst.name in needed - {*multiplied}:
            found.append(s)
    return tuple(reversed(found))


def _beside(
    kernel: Kernel, rest: Sequence[Statement], dots: Sequence[Dot]
) -> tuple[tuple[Statement, ...], tuple[Statement, ...]]:
    """The statements of an iteration besides its dots: those that may precede them all, and those that follow."""
    summed = {d.dst.name for d in dots}
    filled = [s for s in rest if isinstance(s, Fill) and s.dst.name in summed and s.value == 0]
    late, scaling, promotion = set(summed), list[Statement](), list[Statement]()
    for s in rest:
        if s in filled:
            continue
        if not _is_computed(s):
            refuse(kernel, f"its loop has a {type(s).__name__}; expected loads of operands, dots, and what scales them")
        made = {t.name for t in produced(s)}
        follows = bool(late & {*read(s), *made})
        late |= made if follows else set()
        (promotion if follows else scaling).append(s)
    if rest and {s.dst.name for s in filled} != summed:
        refuse(kernel, "its dots add to sums of other iterations, which are scaled; expected them to start from 0")
    if early := late & {x for s in scaling for x in read(s)}:
        refuse(kernel, f"{', '.join(sorted(early))} is read before the dots that it follows on")
    return tuple(scaling), tuple(promotion)
