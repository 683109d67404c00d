"""Contractions of few rows with a large operand that streams from memory into the registers of dots, on a GPU.

Before:  for m, n: out[m, n] = epilogue(sum over k of a[m, k] * f(b[n, k]))         m is at most 64
After:   grid n.0, m.0:
           for k.0 (loads iterations ahead):        parts of k, each for one warp, or for several with rows of b each
             q = load b[n tile, parts, :]; x = load a[m tile, parts, :]
             acc += dot(f(q), x)                    from the registers that they were loaded to
           out = epilogue(sum of acc over parts)

Memory is the bound as long as rows are few. No warp waits for another before the sums meet in shared memory. Integers
of few bits become floats two at a time (`programs.bit_fields`); scales of groups are factors of each part's dot.

Sources: Ansor's rules as in `contraction`; Frantar et al., "MARLIN: Mixed-Precision Auto-Regressive Parallel Inference
on Large Language Models", PPoPP 2025; Kim et al., "Who Says Elephants Can't Run: Bringing Large Scale MoE Models into
Cloud Scale Production", 2022, for conversions by bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from search_spaces.decisions.decision import Anchor, Decision, derived, start
from search_spaces.decisions.loops.pipelining import pipelining
from search_spaces.decisions.programs.warps import num_warps
from search_spaces.decisions.tiles.tiling import tiling
from search_spaces.devices.target import Target
from search_spaces.errors import UnmatchedError
from search_spaces.programs.bit_fields import field_operand, made_by
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.lowering import Emitter, buffers, slice_at, start_of
from search_spaces.programs.neighbours import Neighbours
from search_spaces.programs.statements import Deinterleave, Dot, Fill, For, Load, Map, Reduce, Statement
from search_spaces.programs.tile_program import Kernel, TileProgram
from search_spaces.programs.tiles import Flat, Slice, Tile, side
from search_spaces.schedules.knobs import Values, nearest
from search_spaces.schedules.limits import Offers
from search_spaces.schedules.rules import Rule
from search_spaces.schedules.sketch import Sketch
from search_spaces.structure.streamed import Streamed, streamed
from search_spaces.workloads.dtypes import holds_integers
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Literal, Position, call
from search_spaces.workloads.names import Names
from search_spaces.workloads.workload import Axis, Workload

# Tiles: whole rows and columns of an instruction (PTX ISA, mma.m16n8k16).
_WIDE, _THIN = (16, 32, 64, 128, 256), (8, 16, 32, 64)
# Parts of k at once, each of which has the same number of warps.
_PARTS = (1, 2, 4, 8, 16)
# Starts: extents along the wide and the thin axis, parts of k at once, warps of each, and stages.
_STARTS = (
    (16, 64, 8, 1, 1),
    (32, 64, 8, 1, 2),
    (32, 64, 4, 1, 2),
    (16, 64, 16, 1, 2),
    (32, 64, 4, 1, 4),
    (64, 16, 4, 1, 3),
    (16, 64, 4, 1, 3),
    (64, 64, 4, 2, 2),
    (128, 8, 4, 2, 4),
    (256, 16, 4, 4, 3),
    (32, 64, 16, 1, 2),
    (64, 64, 8, 2, 4),
    (64, 64, 4, 2, 1),
    (32, 64, 4, 1, 1),
)
_INSTRUCTION = (16, 8, 16)


def derive(workload: Workload, target: Target, offers: Offers) -> tuple[Sketch, ...]:
    """One sketch for a product of 16-bit floats, or with integers of few bits, with few rows, on a GPU."""
    if not offers.streams:
        raise UnmatchedError("no backend that multiplies what lanes loaded")
    form = streamed(workload)
    units = {(i.m, i.n, i.k) for i in target.features.multiplying(form.whole.dtype, "registers")}
    if _INSTRUCTION not in units:
        raise UnmatchedError(f"no matrix instructions of {_INSTRUCTION} {form.whole.dtype} from registers")
    decisions = (
        tiling("wide", form.wide.extent, "grid", _fitting(form.wide, _WIDE)),
        tiling("thin", form.thin.extent, "grid", _fitting(form.thin, _THIN)),
        tiling("k", form.part.extent, "loop", _fitting(form.part, _PARTS)),
        pipelining(target, (1, 2, 3, 4, 6)),
        num_warps(target, least=2),
    )
    starts = tuple(_starts(form, decisions))
    _check_fields(form, _lower(form, starts[0]))
    anchor = Anchor(
        "streamed_contraction",
        lambda values: _lower(form, values),
        (Rule(("warps", "k", "wide"), _why_uneven),),
        starts,
    )
    return (derived(anchor, decisions),)


def _fitting(axis: Axis, sizes: Sequence[int]) -> list[int]:
    """Sizes that exceed the extent by less than a whole smaller tile."""
    return [s for s in sizes if s < 2 * axis.extent] or [sizes[0]]


def _starts(form: Streamed, decisions: Sequence[Decision]) -> Iterator[Values]:
    by_name = {d.name: d.knob for d in decisions}
    found = list[Values]()
    for wide, thin, parts, beside, stages in _STARTS:
        k = nearest(by_name["k"], parts)
        values = Values(
            wide=nearest(by_name["wide"], wide),
            thin=nearest(by_name["thin"], min(thin, form.thin.extent)),
            k=k,
            stages=nearest(by_name["stages"], stages),
            warps=nearest(by_name["warps"], Values(k=k).tile("k") * beside),
        )
        if values not in found and not _why_uneven(values):
            found.append(values)
            yield start(decisions, values)


def _why_uneven(values: Values) -> str | None:
    warps, parts, wide = values.integer("warps"), values.tile("k"), values.tile("wide")
    beside, rest = divmod(warps, parts)
    if rest or not beside or wide % (_INSTRUCTION[0] * beside):
        return f"warps={warps}: {parts} parts of k and {wide} of the other axis are no whole tiles of {_INSTRUCTION[0]}"
    return None


def _check_fields(form: Streamed, program: TileProgram) -> None:
    """Raise UnmatchedError unless the large operand is as stored, or a field of bytes."""
    (loop,) = (s for s in program.kernels[0].body if isinstance(s, For))
    for dot in (s for s in loop.body if isinstance(s, Dot)):
        found = field_operand(loop.body, dot.a)
        if made_by(loop.body, dot.a) and found is None:
            raise UnmatchedError(f"{form.large.tensor} is multiplied neither as stored nor by fields of its bytes")
        # A field is a distance from a number of half the largest integers that the type has all of.
        less = found.field.sign + abs(found.field.less) if found and found.field else 0
        if not holds_integers(form.whole.dtype, 2 * less):
            raise UnmatchedError(f"bits less {less}, beyond the integers of {form.whole.dtype}")


def _lower(form: Streamed, values: Values) -> TileProgram:
    names, parts = Names(), values.tile("k")
    part, wide, thin = form.part.name, values.tile("wide"), values.tile("thin")
    place = {x.name: Slice(start_of((f"{x.name}.0", 1))) for x in form.whole.outer}
    place[part] = Slice(start_of((f"{part}.0", parts)), parts, part)
    tiles = {form.wide: wide, form.thin: thin}
    place |= {x.name: Slice(start_of((f"{x.name}.0", s)), s, x.name) for x, s in tiles.items()}
    place[form.k.name] = Slice(Affine(), form.k.extent, form.k.name)
    sums = Tile(names.fresh("sums"), (part, form.wide.name, form.thin.name), (parts, wide, thin))
    body = _iteration(form, place, sums, form.part.extent % parts > 0, names)
    loop = For(f"{part}.0", values.tiling("k")[0], tuple(body))
    total = Tile(names.fresh("sum"), sums.axes[1:], sums.shape[1:])
    finish = Emitter({x.name: place[x.name] for x in form.whole.axes}, _dtypes(form), names, {form.dot.stage: total})
    for name, result in form.whole.results:
        finish.store(name, tuple(x.name for x in form.whole.axes), finish.tile(result, "out"))
    grid = [GridAxis(f"{x.name}.0", x.extent) for x in form.whole.outer]
    grid += (GridAxis(f"{x.name}.0", values.tiling(t)[0]) for x, t in ((form.wide, "wide"), (form.thin, "thin")))
    statements = (Fill(sums, 0.0), loop, Reduce(total, sums.name, part, "sum"), *finish.body)
    kernel = Kernel(form.workload.name, Grid(tuple(grid)), statements)
    return TileProgram(form.workload.name, buffers(form.workload), (kernel,))


def _dtypes(form: Streamed) -> dict[str, str]:
    return {t.name: t.dtype for t in form.workload.inputs}


def _iteration(form: Streamed, place: dict[str, Slice], sums: Tile, is_uneven: bool, names: Names) -> list[Statement]:
    """Load a part for each warp, and add its products, scaled if they are, to the sums."""
    body: list[Statement] = []
    neighbours = Neighbours({})

    def emitter(digit: int) -> Emitter:
        own = {form.together.name: Slice(Affine(offset=digit))} if form.together else {}
        called = {form.large.tensor: "large"}
        return Emitter(
            {**own, **place}, _dtypes(form), names, body=body, neighbours=neighbours, short=True, called=called
        )

    emitters = [emitter(digit) for digit in range(form.digits)]
    emitters[0].emit(form.large)
    rows = _rows(form, place, body, names)
    acc = replace(sums, name=names.fresh("acc")) if form.dot.scale else sums
    scale = emitters[0].tile(form.dot.scale, "scale") if form.dot.scale else None
    if scale:
        body.append(Fill(acc, 0.0))
    for own, row in zip(emitters, rows, strict=True):
        body.append(Dot(acc, own.tile(form.computed, "columns").name, row.name, form.k.name, from_memory=True))
    if scale:
        scaled = emitters[0].map("mul", acc, scale, name="scaled")
        if is_uneven:
            # What a scale is of elements outside of its tensor may be infinite.
            inside = emitters[0].emit(
                call("lt", Position(axis_index(form.part.name)), Literal(float(form.part.extent)))
            )
            scaled = emitters[0].map("where", inside, scaled, 0.0, name="scaled")
        body.append(Map(sums, "add", (sums.name, scaled.name)))
    return body


def _rows(form: Streamed, place: dict[str, Slice], body: list[Statement], names: Names) -> list[Tile]:
    """The rows' tile for each of the values in an element of the large tensor, all loaded at once."""
    slices = _whole(form.rows, place, form)
    whole = Tile.along(slices, names.fresh("rows"), _dtypes(form)[form.rows.tensor])
    order = (form.part.name, form.thin.name, form.k.name)
    whole = replace(whole, axes=order, shape=tuple(whole.extent(x) for x in order))
    body.append(Load(whole, form.rows.tensor, slices))
    if form.together is None:
        return [whole]
    shape = (*whole.shape[:-1], form.k.extent)
    parts = tuple(replace(whole, name=names.fresh("rows"), shape=shape) for _ in range(form.digits))
    body.append(Deinterleave(parts, whole.name, form.k.name))
    return [*parts]


def _whole(access: Access, place: dict[str, Slice], form: Streamed) -> tuple[Slice, ...]:
    """Slices of the rows, along k and the values of an element as one axis."""
    if form.together is None:
        return tuple(slice_at(i, place) for i in access.index)
    k, inner, count = form.k.name, form.together.name, form.digits
    at = {**place, inner: Slice(Affine())}
    length, found = form.k.extent * count, list[Slice]()
    for i in access.index:
        piece = slice_at(i, at)
        if i.step(k) and i.step(inner):
            found.append(Slice(piece.start, length, k))
        elif i.step(k):
            found.append(side(piece.start, length, k, Flat(Affine(), count, form.k.extent)))
        elif i.step(inner):
            found.append(side(piece.start, length, k, Flat(Affine(), 1, count)))
        else:
            found.append(piece)
    return tuple(found)
