"""Cuts the statements of an element-wise kernel into passes over the columns of one row.

A reduction over the columns has no value before all of them were read, so its uses belong to a later pass:

    x = load; top = max of x     | pass 1
    e = exp(x - top)             | pass 2; keeps e in scratch memory for pass 3, and loads x again
    total = sum of e             |
    store out = e / total        | pass 3
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from search_spaces.programs.statements import (
    Fill,
    Gather,
    Load,
    Map,
    Position,
    Reduce,
    Scan,
    Statement,
    Store,
    produced,
    statements,
)
from search_spaces.programs.tiles import Tile

# Operations so cheap that a later pass repeats them rather than keeping their result in memory.
REPEATABLE = frozenset(
    {"add", "sub", "mul", "neg", "abs", "maximum", "minimum", "floor", "lt", "le", "eq", "where", "cast"}
)


@dataclass
class Pass:
    """Statements of one loop over the columns; `kept` tiles are stored to scratch memory, `recalled` ones loaded."""

    statements: list[Statement] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)
    recalled: list[str] = field(default_factory=list)


# A piece of a body: a pass over the columns, or one statement on values per row (loops and branches among them).
Piece = Pass | Statement


def carried_tiles(body: Sequence[Statement], column: str) -> frozenset[str]:
    """The tiles with columns that are assigned to more than once: they live in scratch memory, from loop to loop."""
    made = Counter(t.name for s in statements(tuple(body)) for t in produced(s) if column in t.axes)
    return frozenset(name for name, times in made.items() if times > 1)


def pieces(
    body: Sequence[Statement], column: str, tiles: Mapping[str, Tile], carried: frozenset[str] = frozenset()
) -> list[Piece]:
    """The body as passes and single statements, in an order that computes the same.

    A pass takes `carried` tiles from scratch memory, and puts those that it changes back there.
    """
    cut: list[Piece] = []
    for statement in body:
        if not _walks_columns(statement, column, tiles):
            if cut and isinstance(cut[-1], Pass) and _may_precede(statement, cut[-1]):
                cut.insert(len(cut) - 1, statement)
            else:
                cut.append(statement)
        elif cut and isinstance(cut[-1], Pass) and not _folded(cut[-1]) & set(used(statement)):
            cut[-1].statements.append(statement)
        else:
            cut.append(Pass([statement]))
    _connect(cut, column, tiles, carried)
    return cut


def _may_precede(statement: Statement, walk: Pass) -> bool:
    """True if a value per row may be computed before the pass: it reads and changes no tile of it."""
    if not isinstance(statement, Load | Gather | Position | Fill | Map):
        return False
    concerned = {t for s in walk.statements for t in (*used(s), *(p.name for p in produced(s)))}
    return statement.dst.name not in concerned and not _folded(walk) & set(used(statement))


def used(statement: Statement) -> tuple[str, ...]:
    """The tiles that a statement reads."""
    match statement:
        case Map(arguments=arguments):
            return tuple(a for a in arguments if isinstance(a, str))
        case Reduce(src=src) | Store(src=src):
            return (src,)
        case Scan(srcs=srcs):
            return srcs
        case Gather(index=pieces_of_index):
            return tuple(i for i in pieces_of_index if isinstance(i, str))
        case _:
            return ()


def _walks_columns(statement: Statement, column: str, tiles: Mapping[str, Tile]) -> bool:
    match statement:
        case Reduce() | Scan():
            return True
        case Load(dst=dst) | Gather(dst=dst) | Position(dst=dst) | Map(dst=dst) | Fill(dst=dst):
            return column in dst.axes
        case Store(src=src):
            return column in tiles[src].axes
        case _:
            return False


def _folded(done: Pass) -> set[str]:
    return {s.dst.name for s in done.statements if isinstance(s, Reduce)}


def _connect(cut: Sequence[Piece], column: str, tiles: Mapping[str, Tile], carried: frozenset[str]) -> None:
    """Connect passes to results of earlier ones: repeat cheap statements, or pass results through scratch memory."""
    source: dict[str, tuple[int, Statement]] = {}
    for number, piece in enumerate(cut):
        if not isinstance(piece, Pass):
            continue
        own = {t.name for s in piece.statements for t in produced(s)}
        piece.kept |= own & carried
        piece.recalled += _read_first(piece.statements, carried)
        own |= carried
        wanted = [t for s in piece.statements for t in used(s) if column in tiles[t].axes and t not in own]
        repeated: list[Statement] = []
        for name in dict.fromkeys(wanted):
            _recall(cut, name, number, source, column, tiles, repeated, piece, carried)
        for statement in piece.statements:
            source.update((t.name, (number, statement)) for t in produced(statement) if column in t.axes)
        piece.statements[:0] = repeated


def _read_first(body: Sequence[Statement], names: frozenset[str]) -> list[str]:
    """The tiles that the statements read before they assign to them."""
    found: dict[str, None] = {}
    made: set[str] = set()
    for statement in body:
        found.update((name, None) for name in used(statement) if name in names - made)
        made.update(t.name for t in produced(statement))
    return list(found)


def _recall(
    cut: Sequence[Piece],
    name: str,
    number: int,
    source: Mapping[str, tuple[int, Statement]],
    column: str,
    tiles: Mapping[str, Tile],
    repeated: list[Statement],
    piece: Pass,
    carried: frozenset[str],
) -> None:
    """Make a tile of an earlier pass available in this one."""
    origin, statement = source[name]
    if statement in repeated or name in piece.recalled:
        return
    changed = {t.name for p in cut[origin + 1 : number] if not isinstance(p, Pass) for t in produced(p)}
    if not _is_cheap(statement, column, tiles) or (changed | carried) & set(used(statement)):
        piece.recalled.append(name)
        earlier = cut[origin]
        assert isinstance(earlier, Pass)
        earlier.kept.add(name)
        return
    for argument in used(statement):
        if column in tiles[argument].axes:
            _recall(cut, argument, number, source, column, tiles, repeated, piece, carried)
    repeated.append(statement)


def _is_cheap(statement: Statement, column: str, tiles: Mapping[str, Tile]) -> bool:
    match statement:
        case Load() | Fill() | Position():
            return True
        case Map(operator=operator):
            return operator in REPEATABLE
        case Gather():
            # A row that is looked up is read like any other; elements of many rows are not.
            return not any(column in tiles[i].axes for i in used(statement))
        case _:
            return False
