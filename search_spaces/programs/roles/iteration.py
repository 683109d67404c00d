"""An iteration of chained dots, and legal orders of its parts.

    in order                          overlapped, an iteration before the dots that follow on it
      s = dot(q, k)                     s = dot(q, k) begins
      top, p, … = …                     acc += dot(p, v) of the iteration before begins
      acc = acc * …                     s is waited for; top, p, … = …
      acc += dot(p, v)                  acc is waited for; acc = acc * …

(Shah et al., "FlashAttention-3", section 3.2: pipelining GEMMs and softmax within a warp group.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from search_spaces.programs.roles.statements import (
    Await,
    Give,
    Issue,
    Keep,
    Release,
    Ring,
    RoleStatement,
    Settle,
    Take,
)
from search_spaces.programs.statements import Dot, Fill, For, Load, Statement, produced, read


@dataclass(frozen=True)
class Iteration:
    """The parts of an iteration of chained dots.

    `first`: dots of loaded tiles, preceded only by `fills`; `points`: pointwise work and reductions that follow them;
    `then`: dots of these; `moves`: work on the accumulators of `then`; `changed`: tiles that `points` reassign after
    `then` or `moves` have read them.
    """

    fills: tuple[Fill, ...]
    first: tuple[Dot, ...]
    points: tuple[Statement, ...]
    moves: tuple[Statement, ...]
    then: tuple[Dot, ...]
    changed: frozenset[str] = frozenset()

    @staticmethod
    def of(loop: For, loaded: Collection[str]) -> Iteration:
        """Split the body of a loop; `loaded`: the tiles in shared memory."""
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
                # Tiles computed from these accumulators are as late as they are.
                moving |= made
                late |= {*read(s)} - moving
                moves.append(s)
            else:
                changed |= made & late
                points.append(s)
        return Iteration(tuple(fills), first, tuple(points), tuple(moves), then, frozenset(changed))

    def why_not_overlapped(self) -> str | None:
        """Reason that its first dots cannot begin before the last iteration's second dots are settled, or None."""
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


@dataclass(frozen=True)
class InOrder:
    """An iteration in program order, in which consecutive dots run together.

    `loaded`: the tiles in shared memory; `rings`: the ring of each tile that the loop loads. With `turns`, groups issue
    the dots of loaded tiles alternately.
    """

    loop: For
    rings: Mapping[str, Ring]
    loaded: Collection[str]
    turns: bool

    def statements(self) -> Iterator[RoleStatement]:
        awaited: list[Ring] = []
        for run in self._runs():
            yield from run.fills
            early = _early(run.others) if run.dots else ()
            if run.dots:
                new = [ring for ring in _read_by(run.dots, self.rings) if ring not in awaited]
                awaited += new
                yield from self._dots(tuple(run.dots), new, early)
            yield from (s for s in run.others if s not in early)

    def _dots(self, dots: tuple[Dot, ...], new: Sequence[Ring], early: Sequence[Statement]) -> Iterator[RoleStatement]:
        turns = self.turns and all(x in self.loaded for d in dots for x in (d.a, d.b))
        yield Keep(dots)
        yield from [Take()] if turns else []
        yield from map(Await, new)
        yield Issue(dots, anew=frozenset(d.dst.name for d in dots if starts_anew(d, self.loop)))
        yield from [Give()] if turns else []
        yield from early
        yield Settle(dots)
        yield from map(Release, _read_by([d for d in dots if self._is_last(d)], self.rings))

    def _runs(self) -> list[_Run]:
        """The iteration as a sequence of runs."""
        runs = [_Run()]
        summed = {s.dst.name for s in self.loop.body if isinstance(s, Dot)}
        for s in self.loop.body:
            if isinstance(s, Load) and s.dst.name in self.rings:
                continue
            starts = isinstance(s, Fill) and s.dst.name in summed
            if (starts or isinstance(s, Dot)) and runs[-1].others:
                runs.append(_Run())
            if isinstance(s, Dot):
                runs[-1].dots.append(s)
            else:
                (runs[-1].fills if starts else runs[-1].others).append(s)
        return runs

    def _is_last(self, dot: Dot) -> bool:
        """True if no later dot reads a ring's tile that this one reads."""
        later = self.loop.body[self.loop.body.index(dot) + 1 :]
        return not any(isinstance(s, Dot) and {s.a, s.b} & {dot.a, dot.b} & {*self.rings} for s in later)


@dataclass
class _Run:
    """Dots that run together, the initial values of their accumulators, and the statements that follow."""

    fills: list[Statement] = field(default_factory=list)
    dots: list[Dot] = field(default_factory=list)
    others: list[Statement] = field(default_factory=list)


@dataclass(frozen=True)
class Ahead:
    """An iteration whose first dots are issued before the second dots of the previous iteration are settled."""

    parts: Iteration
    rings: Mapping[str, Ring]
    turns: bool

    def first(self) -> Iterator[RoleStatement]:
        """The first iteration, without its second dots."""
        yield from (*self._issued(), *self._turn_given, *self._points(left=0))
        yield from (*self.parts.moves, Keep(self.parts.then))

    def behind(self) -> Iterator[RoleStatement]:
        """Every later iteration: its points are computed while the second dots of the previous one run."""
        yield from (*self._issued(), *self.then(), *self._turn_given, *self._points(left=len(self.parts.then)))
        yield from (*self.settled(), *self.parts.moves, Keep(self.parts.then))

    def then(self) -> Iterator[RoleStatement]:
        """Issue the second dots of the previous iteration."""
        yield from (Await(ring, -1) for ring in _read_by(self.parts.then, self.rings))
        yield Issue(self.parts.then, -1)

    def settled(self) -> Iterator[RoleStatement]:
        """Wait for these dots and release their operands."""
        yield Settle(self.parts.then)
        yield from (Release(ring, -1) for ring in _read_by(self.parts.then, self.rings))

    def _issued(self) -> Iterator[RoleStatement]:
        yield from self.parts.fills
        yield from [Take()] if self.turns else []
        yield from map(Await, _read_by(self.parts.first, self.rings))
        yield Issue(self.parts.first, anew=frozenset(d.dst.name for d in self.parts.first))

    def _points(self, left: int) -> Iterator[RoleStatement]:
        """The points that follow the first dots; operands that only these read are released."""
        early, later = _early(self.parts.points), _read_by(self.parts.then, self.rings)
        yield from early
        yield Settle(self.parts.first, left)
        yield from (Release(ring) for ring in _read_by(self.parts.first, self.rings) if ring not in later)
        yield from (s for s in self.parts.points if s not in early)

    @property
    def _turn_given(self) -> list[RoleStatement]:
        return [Give()] if self.turns else []


def starts_anew(dot: Dot, loop: For) -> bool:
    """True if a statement before the dot in the loop fills its accumulator with 0."""
    before = loop.body[: loop.body.index(dot)]
    return any(isinstance(s, Fill) and s.dst.name == dot.dst.name and s.value == 0.0 for s in before)


def _read_by(dots: Sequence[Dot], rings: Mapping[str, Ring]) -> list[Ring]:
    """The rings that the dots read."""
    return list(dict.fromkeys(rings[x] for d in dots for x in (d.a, d.b) if x in rings))


def _early(points: Sequence[Statement]) -> tuple[Statement, ...]:
    """Loads for points, which are independent of the dots and overlap with them."""
    return tuple(s for s in points if isinstance(s, Load))
