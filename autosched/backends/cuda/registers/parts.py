"""Spreads of parts of an axis: halves, every other position, an axis split into several.

None if a part has none, because it begins within a digit of lanes or warps.
"""

from __future__ import annotations

from collections.abc import Sequence

from autosched.backends.cuda.registers.layouts import Digit, Spread, simplified


def first_half(spread: Spread) -> Spread | None:
    """Spread of the first half of the positions, in the first half of a thread's registers."""
    digits = simplified(spread)
    if not digits or digits[-1].kind != "register" or digits[-1].size % 2:
        return None
    return simplified((*digits[:-1], Digit("register", digits[-1].size // 2)))


def after_digits(spread: Spread, parts: int) -> Spread | None:
    """Spread of every `parts`-th position."""
    digits = simplified(spread)
    if not digits or digits[0].kind != "register" or digits[0].size % parts:
        return None
    return simplified((Digit("register", digits[0].size // parts), *digits[1:]))


def interleaved(spread: Spread, parts: int) -> Spread:
    """Spread of the interleaved positions of `parts` tiles."""
    return simplified((Digit("register", parts), *spread))


def cut(spread: Spread, sizes: Sequence[int]) -> list[Spread] | None:
    """Spreads of the axes that an axis is split into, the one with neighbours first."""
    left = [*simplified(spread)]
    pieces: list[Spread] = []
    for size in sizes:
        piece: list[Digit] = []
        while size > 1:
            if not left:
                return None
            digit = left.pop(0)
            if size % digit.size == 0:
                piece.append(digit)
                size //= digit.size
            elif digit.size % size == 0:
                place = digit.place * size if digit.kind != "register" else 1
                piece.append(Digit(digit.kind, size, digit.place))
                left.insert(0, Digit(digit.kind, digit.size // size, place))
                size = 1
            else:
                return None
        pieces.append(simplified(piece))
    return pieces
