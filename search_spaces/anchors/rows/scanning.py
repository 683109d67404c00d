"""Scans of the columns of some rows: within a tile, and carried from one iteration to the next.

    before the loop     h_carry = the neutral value
    in every iteration  h = scan of x_tile along c;  h = h_carry + h;  h_carry = the last column of h
    one by one          h = h_carry + x;  h_carry = h

If no neutral value is known, a number tells if an iteration came before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from search_spaces.anchors.rows.row_parts import RowTiles, folded_in, spread
from search_spaces.programs.lowering import Emitter
from search_spaces.programs.statements import Combination, Fill, Load, Map, Position, Scan, Statement, View
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.structure.axes import Structure
from search_spaces.workloads.expressions.affine import Affine
from search_spaces.workloads.expressions.expression import Access, Integer, Literal
from search_spaces.workloads.expressions.kinds import is_integral
from search_spaces.workloads.expressions.walking import accesses
from search_spaces.workloads.names import Names
from search_spaces.workloads.scans import LEFT, RIGHT, unchanging
from search_spaces.workloads.stages import Stage

_STARTED = "started"


def together(scans: Sequence[Stage]) -> list[tuple[Stage, ...]]:
    """The stages of every scan, in order."""
    members = {s.scan.members: s.scan.members for s in scans if s.scan}
    named = {s.name: s for s in scans}
    return [tuple(named[m] for m in names) for names in members]


def scanning(rows: RowTiles, stages: Iterable[Stage], names: Names) -> tuple[RowTiles, list[Statement]]:
    """Rows that scan everything the stages read in every iteration of a loop, and the statements before the loop."""
    scans = rows.structure.read_scans(stages)
    if not scans:
        return rows, []
    carried = Scanning.carried(rows, scans, names)
    return replace(rows, scan=carried.scan_all), carried.start()


def in_order(structure: Structure) -> Iterator[tuple[Stage, ...]]:
    """Every fold and scan after those that it is computed from; stages that are scanned together are one."""
    waiting = [*((s,) for s in structure.folds), *together(structure.scans)]
    anchors = {s.name for group in waiting for s in group}
    while waiting:
        ready = next(
            g for g in waiting if not anchors & {a for s in g for a in _read(structure, s)} - {m.name for m in g}
        )
        anchors -= {s.name for s in ready}
        waiting.remove(ready)
        yield ready


def _read(structure: Structure, stage: Stage) -> tuple[str, ...]:
    return tuple(a.tensor for a in accesses(structure.body_of(stage)))


@dataclass(frozen=True)
class Scanning:
    """The scans of a loop over the columns; `carries`: a value of the rows for each, by name."""

    rows: RowTiles
    scans: Sequence[Stage]
    names: Names
    carries: dict[str, Tile] = field(default_factory=dict)

    @staticmethod
    def carried(rows: RowTiles, scans: Sequence[Stage], names: Names) -> Scanning:
        """Scans that are carried from iteration to iteration."""
        sliced = rows.sliced
        carries = {
            s.name: Tile(names.fresh(f"{s.name}_carry"), tuple(sliced), tuple(sliced.values()), folded_in(s))
            for s in scans
        }
        if any(start(group) is None for group in together(scans)):
            carries[_STARTED] = Tile(names.fresh(_STARTED), (), ())
        return Scanning(rows, scans, names, carries)

    def start(self) -> list[Statement]:
        """Set the carries before the first iteration."""
        starts = {s.name: start(group) or 0 for group in together(self.scans) for s in group}
        return [Fill(tile, starts.get(name, 0)) for name, tile in self.carries.items()]

    def start_from(self, buffers: Mapping[str, str], place: tuple[Slice, ...], part: Affine) -> list[Statement]:
        """Set the carries of a part's first iteration to the values of every scan's buffer at the place.

        Outside of the buffer, nothing is carried.
        """
        starts = {s.name: start(group) or 0 for group in together(self.scans) for s in group}
        body: list[Statement] = [Load(self.carries[n], b, place, starts[n]) for n, b in buffers.items()]
        if _STARTED in self.carries:
            at = Tile(self.names.fresh("part"), (), ())
            body += [Position(at, Slice(part)), Map(self.carries[_STARTED], "minimum", (at.name, 1.0))]
        return body

    def scan_all(self, emitter: Emitter, columns: Slice) -> None:
        """Scan the columns of the emitter, so that it knows the results."""
        for group in together(self.scans):
            self.scan(emitter, group, columns)
        if _STARTED in self.carries:
            emitter.body.append(Fill(self.carries[_STARTED], 1.0))

    def scan(self, emitter: Emitter, group: Sequence[Stage], columns: Slice) -> None:
        """Scan the columns by one of the scans."""
        elements = [self._elements(emitter, stage, columns) for stage in group]
        values = elements
        if columns.extent is not None:
            statement = self._within(group, elements)
            emitter.body.append(statement)
            values = [*statement.dsts]
        emitter.tiles.update({s.name: value for s, value in zip(group, values, strict=True)})
        if self.carries:
            self._carry(emitter, group, columns)

    def _elements(self, emitter: Emitter, stage: Stage, columns: Slice) -> Tile:
        value = emitter.tile(self.rows.body_of(stage), f"{stage.name}_each")
        whole = self.rows.points("", columns, folded_in(stage))
        return spread(emitter, value, dict(zip(whole.axes, whole.shape, strict=True)))

    def _within(self, group: Sequence[Stage], elements: Sequence[Tile]) -> Scan:
        """The scan of the columns alone."""
        assert group[0].scan is not None
        return scan_along(group, elements, self.rows.structure.column.name, group[0].scan.reverse, self.names)

    def _carry(self, emitter: Emitter, group: Sequence[Stage], columns: Slice) -> None:
        """Combine the carry with the values of this iteration, and carry the last of them on."""
        scan, values = group[0].scan, [emitter.tiles[s.name] for s in group]
        assert scan is not None
        joined = _joined(emitter, group, [self.carries[s.name] for s in group], values)
        if start(group) is None:
            joined = [
                emitter.map("where", self.carries[_STARTED], new, only, name=s.name, dtype=only.dtype)
                for s, new, only in zip(group, joined, values, strict=True)
            ]
        for stage, value in zip(group, joined, strict=True):
            emitter.tiles[stage.name] = value
            carry = self.carries[stage.name]
            if columns.extent is None:
                emitter.assign(carry, "cast", value)
            else:
                last = 0 if scan.reverse else columns.extent - 1
                column = self.rows.structure.column.name
                slices = tuple(
                    Slice(Affine(offset=last)) if x == column else Slice(Affine(), e, x)
                    for x, e in zip(value.axes, value.shape, strict=True)
                )
                emitter.body.append(View(carry, value.name, slices))


def scan_along(group: Sequence[Stage], elements: Sequence[Tile], axis: str, reverse: bool, names: Names) -> Scan:
    """The scan of tiles by the combination of stages that are scanned together."""
    first = elements[0]
    dsts = tuple(Tile(names.fresh(s.name), first.axes, first.shape, folded_in(s)) for s in group)
    return Scan(dsts, tuple(x.name for x in elements), axis, _combination(group, names), reverse)


def _combination(group: Sequence[Stage], names: Names) -> Combination:
    """The combination of the group on tiles of one element."""
    sides = {
        side: tuple(Tile(names.fresh(f"{s.name}_{side}"), (), (), folded_in(s)) for s in group)
        for side in (LEFT, RIGHT)
    }
    emitter = Emitter({}, {}, names)
    results = _joined(emitter, group, sides[LEFT], sides[RIGHT])
    body = tuple(s for s in emitter.body if isinstance(s, Map))
    return Combination(sides[LEFT], sides[RIGHT], body, tuple(t.name for t in results))


def _joined(emitter: Emitter, group: Sequence[Stage], left: Sequence[Tile], right: Sequence[Tile]) -> list[Tile]:
    """Results of the group's combination of these tiles."""
    scan = group[0].scan
    assert scan is not None
    known = {t.name: t for t in (*left, *right)}
    emitter.tiles.update(known)
    combined = scan.combined([Access(t.name, ()) for t in left], [Access(t.name, ()) for t in right])
    made = [emitter.tile(e, f"{s.name}_joined") for e, s in zip(combined, group, strict=True)]
    for name in known:
        del emitter.tiles[name]
    return made


def start(group: Sequence[Stage]) -> float | int | None:
    """Neutral value of a combination; None if it is not known."""
    assert group[0].scan is not None
    match unchanging(group[0].scan.combine, is_integral(group[0].expression)):
        case Literal(value) | Integer(value):
            return value
        case _:
            return None
