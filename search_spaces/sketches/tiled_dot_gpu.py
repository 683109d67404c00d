"""Contractions on a GPU: block tiles, a pipelined reduction loop, a fused epilogue; optionally a split reduction.

Before:  for m, n: out[m, n] = epilogue(sum over k of a[m, k] * b[k, n])
After:   grid m.0, n.0 (grouped, maybe persistent):
           acc = 0
           for k.0 (pipelined): acc += dot(a_tile, b_tile)
           store out_tile = epilogue(acc), whole or in two halves

Ansor's rules "multi-level tiling with fusion" and "reduction factorisation" (Zheng et al., 2020, table 1): thread-level
tiling is the backend's, so the levels here are grid, group (for L2) and tile. With `split_k` > 1 a second kernel adds
the partial sums, in a fixed order, and applies the epilogue.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from search_spaces.dtypes import dtype
from search_spaces.expression import Access, Affine
from search_spaces.knobs import Choice, Knob, KnobValue, Tiling, Values, cover, nearest
from search_spaces.lowering import Emitter, Names, buffers, slices_at, start_of, workspace_name
from search_spaces.space import Sketch
from search_spaces.structure import ContractionForm, contraction_form
from search_spaces.target import Target
from search_spaces.tile_program import (
    Bound,
    Buffer,
    Dot,
    Fill,
    For,
    Grid,
    GridAxis,
    Kernel,
    Launch,
    Load,
    Slice,
    Split,
    Statement,
    Store,
    Tile,
    TileProgram,
)
from search_spaces.workload import Workload

# A dot needs tiles of at least 16 (Triton's language reference, tl.dot).
TILES = (16, 32, 64, 128, 256)
REDUCTION_TILES = (16, 32, 64, 128)
# Tensor descriptors need strides and base addresses that are multiples of this (CUDA driver API, cuTensorMapEncode).
DESCRIPTOR_ALIGNMENT_BYTES = 16
# (m, n, k, warps, stages) of the tiles to start from: large ones for much work, small ones for little.
_START_TILES = ((128, 256, 64, 8, 3), (128, 128, 64, 8, 3), (128, 64, 64, 4, 4), (64, 64, 64, 4, 4), (64, 32, 32, 4, 3))
# The second kernel of a split reduction: a tile of this many rows and columns per program.
COMBINE_TILE = (16, 64)


def derive(workload: Workload, target: Target) -> tuple[Sketch, ...]:
    """One sketch for a contraction with a pointwise epilogue on a GPU."""
    form = contraction_form(workload)
    if form is None or target.kind != "gpu":
        return ()
    legality = ("m", "n", "k", "split_k", "stages", "warps", "store", "halves")
    knobs = _knobs(workload, form, target)
    return (
        Sketch(
            "tiled_dot_gpu",
            knobs,
            lambda values: _lower(workload, form, target, values),
            legality,
            _why_illegal,
            _starts(knobs),
        ),
    )


def _knobs(workload: Workload, form: ContractionForm, target: Target) -> tuple[Knob, ...]:
    def tiling(name: str, extent: int, sizes: tuple[int, ...]) -> Tiling:
        # A tile may exceed the extent, but not by a whole smaller tile.
        fitting = [s for s in sizes if s < 2 * extent] or [sizes[0]]
        return Tiling(
            name, extent, ("grid" if name != "k" else "loop", "tile"), tuple(cover(extent, (s,)) for s in fitting)
        )

    k = form.k.extent
    addressing = {
        name: _addressing(workload, name, target) for name in (form.a.tensor, form.b.tensor, workload.output.name)
    }
    grids = ("tiles", "persistent", "persistent_flat") + (
        ("persistent_specialized",) if target.capability >= 90 else ()
    )
    return (
        tiling("m", form.m.extent, TILES),
        tiling("n", form.n.extent, TILES),
        tiling("k", k, REDUCTION_TILES),
        Choice("split_k", tuple(s for s in (1, 2, 4, 8, 16, 32, 64) if s == 1 or s * 2 * REDUCTION_TILES[-1] <= k)),
        Choice("order", ("mn", "nm")),
        Choice("group", (1, 2, 4, 8, 16)),
        Choice("grid", grids, ordered=False),
        Choice("a_load", addressing[form.a.tensor]),
        Choice("b_load", addressing[form.b.tensor]),
        Choice("store", addressing[workload.output.name]),
        Choice("halves", (1, 2)),
        Choice("warps", (4, 8)),
        Choice("stages", (1, 2, 3, 4, 5, 6)),
    )


def _starts(knobs: tuple[Knob, ...]) -> tuple[Values, ...]:
    """Tiles that fill the dot units of recent GPUs, in a grouped order, with the fastest addressing there is."""
    by_name = {k.name: k for k in knobs}
    return tuple(
        Values(
            m=nearest(by_name["m"], m),
            n=nearest(by_name["n"], n),
            k=nearest(by_name["k"], k),
            split_k=1,
            order="mn",
            group=8,
            grid=grid,
            a_load=by_name["a_load"].values[-1],
            b_load=by_name["b_load"].values[-1],
            store="pointer",
            halves=1,
            warps=warps,
            stages=stages,
        )
        for m, n, k, warps, stages in _START_TILES
        for grid in ("tiles", "persistent")
    )


def _addressing(workload: Workload, name: str, target: Target) -> tuple[KnobValue, ...]:
    """How tiles of a tensor can be moved: by descriptor only where the device has them and every stride is aligned."""
    tensor = next(t for t in (*workload.inputs, workload.output) if t.name == name)
    row_bytes = tensor.shape[-1] * dtype(tensor.dtype).bytes
    if target.has_tensor_descriptors and row_bytes % DESCRIPTOR_ALIGNMENT_BYTES == 0:
        return ("pointer", "descriptor")
    return ("pointer",)


def _why_illegal(values: Values) -> str | None:
    tile_n = values.tile("n")
    if values["halves"] == 2 and tile_n < 32:
        return f"halves=2 needs a tile of at least 32 along n to cut, got {tile_n}"
    return None


def _lower(workload: Workload, form: ContractionForm, target: Target, values: Values) -> TileProgram:
    split = values.integer("split_k")
    if split == 1:
        body = _accumulate(workload, form, values, split)
        body += _epilogue(workload, form, values, Names({"acc", "a", "b"}))
        kernel = Kernel(workload.name, _grid(form, target, values, split), tuple(body), _launch(values))
        return TileProgram(workload.name, buffers(workload), (kernel,))
    partial = Buffer(
        workspace_name(workload, "partial"), (split, *(x.extent for x in form.contraction.axes)), "float32", "workspace"
    )
    place = _place(form, values)
    where = (Slice(start_of(("k.split", 1))), *(place[x.name] for x in form.contraction.axes))
    body = [*_accumulate(workload, form, values, split), Store(partial.name, where, "acc")]
    first = Kernel(f"{workload.name}_partial", _grid(form, target, values, split), tuple(body), _launch(values))
    return TileProgram(
        workload.name, buffers(workload, partial), (first, _combine(workload, form, partial.name, split))
    )


def _launch(values: Values) -> Launch:
    return Launch(num_warps=values.integer("warps"), num_stages=values.integer("stages"))


def _grid(form: ContractionForm, target: Target, values: Values, split: int) -> Grid:
    m, n = values.tiling("m"), values.tiling("n")
    outer = [GridAxis(f"{x.name}.0", x.extent) for x in form.batch]
    outer += [GridAxis("k.split", split)] if split > 1 else []
    tiles = [GridAxis(f"{form.m.name}.0", m[0]), GridAxis(f"{form.n.name}.0", n[0])]
    if values["order"] == "nm":
        tiles.reverse()
    size = values.integer("group")
    group = (tiles[0].variable, size) if size > 1 else None
    return Grid((*outer, *tiles), group, None if values["grid"] == "tiles" else target.units)


def _place(form: ContractionForm, values: Values) -> dict[str, Slice]:
    """Where the output tile of a program lies."""
    place = {x.name: Slice(start_of((f"{x.name}.0", 1))) for x in form.batch}
    for axis, knob in ((form.m, "m"), (form.n, "n")):
        tile = values.tile(knob)
        place[axis.name] = Slice(start_of((f"{axis.name}.0", tile)), tile)
    return place


def _accumulate(workload: Workload, form: ContractionForm, values: Values, split: int) -> list[Statement]:
    steps, tile_k = values.tiling("k")
    per_split = -(-steps // split)
    k_start = start_of(("k.0", tile_k), ("k.split", per_split * tile_k)) if split > 1 else start_of(("k.0", tile_k))
    place = {**_place(form, values), form.k.name: Slice(k_start, tile_k)}
    extents = {name: piece.extent for name, piece in place.items() if piece.extent is not None}
    dtypes = {t.name: t.dtype for t in workload.inputs}

    def load(access: Access, name: str, via: KnobValue) -> Load:
        axes = tuple(i.terms[0][0] for i in access.index if i.terms[0][0] in extents)
        dst = Tile(name, axes, tuple(extents[x] for x in axes), dtypes[access.tensor])
        return Load(
            dst, access.tensor, slices_at(access, place), via="descriptor" if via == "descriptor" else "pointer"
        )

    acc = Tile("acc", (form.m.name, form.n.name), (extents[form.m.name], extents[form.n.name]))
    stages = values.integer("stages")
    loop = For(
        "k.0",
        per_split,
        (
            load(form.a, "a", values["a_load"]),
            load(form.b, "b", values["b_load"]),
            Dot(acc, "a", "b", form.k.name, "tf32" if workload.precision == "tf32" else "ieee"),
        ),
        pipeline_stages=stages,
        flatten=values["grid"] == "persistent_flat",
        warp_specialize=values["grid"] == "persistent_specialized",
        bound=Bound(k_start, form.k.extent) if per_split * split > steps else None,
    )
    return [Fill(acc, 0.0), loop]


def _epilogue(workload: Workload, form: ContractionForm, values: Values, names: Names) -> list[Statement]:
    """Apply the epilogue to the accumulator and store it, in one piece or in two halves along n."""
    place = _place(form, values)
    tile_m, tile_n = values.tile("m"), values.tile("n")
    axes = (form.m.name, form.n.name)
    if values["halves"] == 1:
        return _finish(workload, form, values, place, Tile("acc", axes, (tile_m, tile_n)), names)
    half = tile_n // 2
    first, second = (Tile(names.fresh(f"acc_{side}"), axes, (tile_m, half)) for side in ("left", "right"))
    body: list[Statement] = [Split(first, second, "acc", form.n.name)]
    for position, part in enumerate((first, second)):
        start = place[form.n.name].start + Affine(offset=position * half)
        body += _finish(workload, form, values, {**place, form.n.name: Slice(start, half)}, part, names)
    return body


def _finish(
    workload: Workload, form: ContractionForm, values: Values, place: dict[str, Slice], acc: Tile, names: Names
) -> list[Statement]:
    emitter = Emitter(place, {t.name: t.dtype for t in workload.inputs}, names, tiles={form.contraction.name: acc})
    result = emitter.tile(form.result, "out")
    slices = tuple(place[x.name] for x in form.contraction.axes)
    via: Literal["pointer", "descriptor"] = "descriptor" if values["store"] == "descriptor" else "pointer"
    emitter.body.append(Store(workload.stages[-1].name, slices, result.name, via=via))
    return emitter.body


@lru_cache(64)  # one per number of splits: every schedule with that number shares it
def _combine(workload: Workload, form: ContractionForm, partial: str, split: int) -> Kernel:
    """The second kernel of a split reduction: add the partial sums and finish."""
    extents = dict(zip((form.m.name, form.n.name), COMBINE_TILE, strict=True))
    place = {x.name: Slice(start_of((f"{x.name}.0", 1))) for x in form.batch}
    grid = [GridAxis(f"{x.name}.0", x.extent) for x in form.batch]
    for axis in (form.m, form.n):
        tile = extents[axis.name]
        place[axis.name] = Slice(start_of((f"{axis.name}.0", tile)), tile)
        grid.append(GridAxis(f"{axis.name}.0", -(-axis.extent // tile)))
    axes = (form.m.name, form.n.name)
    acc, part = Tile("acc", axes, COMBINE_TILE), Tile("part", axes, COMBINE_TILE)
    where = (Slice(start_of(("s", 1))), *(place[x.name] for x in form.contraction.axes))
    emitter = Emitter(
        place, {t.name: t.dtype for t in workload.inputs}, Names({"acc", "part"}), {form.contraction.name: acc}
    )
    adding = Emitter(place, {}, Names())
    adding.body.append(Load(part, partial, where))
    adding.assign(acc, "add", acc, part)
    emitter.body += [Fill(acc, 0.0), For("s", split, tuple(adding.body))]
    emitter.store(
        workload.stages[-1].name, tuple(x.name for x in form.contraction.axes), emitter.tile(form.result, "out")
    )
    return Kernel(f"{workload.name}_combine", Grid(tuple(grid)), tuple(emitter.body), Launch(num_warps=4))
