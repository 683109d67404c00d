"""An iteration of chained dots, and in which order its parts may be done.

    in order                          overlapped, an iteration before the dots that follow on it
      s = dot(q, k)                     s = dot(q, k) begins
      top, p, … = …                     acc += dot(p, v) of the iteration before begins
      acc = acc * …                     s is waited for; top, p, … = …
      acc += dot(p, v)                  acc is waited for; acc = acc * …

(Shah et al., "FlashAttention-3", section 3.2: pipelining GEMMs and softmax within a warp group.)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from search_spaces.programs.statements import Dot, Fill, For, Load, Statement, produced, read


@dataclass(frozen=True)
class Iteration:
    """Its dots of what is loaded, `first`, which nothing but `fills` goes before; what is computed, `points`, and the
    `moves` of sums of the dots that follow, `then`. `changed`: what `points` change after one of these has read it."""

    fills: tuple[Fill, ...]
    first: tuple[Dot, ...]
    points: tuple[Statement, ...]
    moves: tuple[Statement, ...]
    then: tuple[Dot, ...]
    changed: frozenset[str] = frozenset()

    @staticmethod
    def of(loop: For, loaded: Collection[str]) -> Iteration:
        """Take the body of a loop apart; `loaded` are the tiles in shared memory."""
        dots = [s for s in loop.body if isinstance(s, Dot)]
        first = tuple(d for d in dots if {d.a, d.b} <= {*loaded})
        then = tuple(d for d in dots if d not in first)
        started = {d.dst.name for d in first}
        moving = {d.dst.name for d in then}
        fills: list[Fill] = []
        points: list[Statement] = []
        moves: list[Statement] = []
        late: set[str] = set()
        changed: set[str] = set()
        for s in loop.body:
            late |= {*read(s)} if s in then else set()
            if s in dots or (isinstance(s, Load) and s.dst.name in loaded):
                continue
            made = {t.name for t in produced(s)}
            if isinstance(s, Fill) and made <= started:
                fills.append(s)
            elif moving & {*made, *read(s)}:
                # What is computed of such sums is as late as they are.
                moving |= made
                late |= {*read(s)} - moving
                moves.append(s)
            else:
                changed |= made & late
                points.append(s)
        return Iteration(tuple(fills), first, tuple(points), tuple(moves), then, frozenset(changed))

    def why_not_overlapped(self) -> str | None:
        """Why its dots cannot begin before those that follow on the last iteration's are done; or None."""
        if not self.first or not self.then:
            return "expected dots of what is loaded, and dots that follow on them"
        if {d.dst.name for d in self.first} - {f.dst.name for f in self.fills}:
            return "its first dots add to sums of the iteration before; expected them to start from 0"
        made = _names(self.moves)
        if made & {x for s in self.points for x in read(s)} or made & {x for d in self.then for x in (d.a, d.b)}:
            return "what is computed needs the sums of the dots that follow"
        if self.changed:
            return f"{', '.join(sorted(self.changed))} changes after it was read"
        return None


def _names(body: Sequence[Statement]) -> set[str]:
    return {t.name for s in body for t in produced(s)}
