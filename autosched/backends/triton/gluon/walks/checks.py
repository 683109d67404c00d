"""Which chained dots can be printed. Everything else is refused, with what is allowed."""

from __future__ import annotations

from autosched.backends.gpu.arguments import descriptor
from autosched.backends.gpu.specialized.form import refuse
from autosched.backends.gpu.warps import GROUP_ROWS, WARP_GROUP, WGMMA
from autosched.backends.triton.gluon.walks.form import WalkForm, brought, sides
from autosched.backends.triton.gluon.walks.iteration import Iteration
from autosched.backends.triton.gluon.walks.trip_counts import fewest_iterations
from search_spaces.programs.statements import Dot, For, If, Load, Split, Store, produced, read, statements
from search_spaces.programs.tile_program import Kernel, TileProgram
from search_spaces.programs.tiles import Tile
from search_spaces.workloads.dtypes import dtype


def walk_form(kernel: Kernel) -> WalkForm:
    """The kernel taken apart.

    Raises:
        CompileError: it cannot be printed.
    """
    form = WalkForm.of(kernel)
    _check(form)
    return form


def check_program(program: TileProgram, form: WalkForm) -> None:
    """What only the buffers tell.

    Raises:
        CompileError: an operand would have to be cast on its way, or loops bring different tiles.
    """
    for load in (*form.held, *(s for loop in form.loops for s in brought(loop))):
        stored = program.buffer(load.buffer).dtype
        if stored != load.dst.dtype:
            refuse(form.kernel, f"{load.buffer} is {stored} and loaded as {load.dst.dtype}; expected equal types")
    tiles = [[descriptor(program.buffer(s.buffer), s.slices) for s in brought(loop)] for loop in form.loops]
    if any(other != tiles[0] for other in tiles):
        refuse(form.kernel, "its loops load different tiles; expected the same in the same order")


def _check(form: WalkForm) -> None:
    kernel, launch = form.kernel, form.kernel.launch
    if launch.num_warps % WARP_GROUP or form.groups not in (1, 2, 3):
        refuse(kernel, f"num_warps={launch.num_warps}; expected {WARP_GROUP}, {2 * WARP_GROUP} or {3 * WARP_GROUP}")
    if launch.producer_warps != 1 or launch.num_ctas != 1:
        refuse(kernel, f"producer_warps={launch.producer_warps}, num_ctas={launch.num_ctas}; expected 1 and 1")
    if form.rows % GROUP_ROWS:
        refuse(kernel, f"{form.rows} rows for a warp group; expected a multiple of {GROUP_ROWS}")
    if form.stages < 2:
        refuse(kernel, f"{form.stages} stages; expected at least 2")
    if launch.alternating and form.groups < 2:
        refuse(kernel, f"alternating with num_warps={launch.num_warps}; expected {2 * WARP_GROUP} at least")
    if kernel.grid.stream:
        refuse(kernel, "its grid streams the reduction; expected whole tiles")
    for s in statements(kernel.body):
        if isinstance(s, Split | If) or (isinstance(s, Store) and s.atomic):
            refuse(kernel, f"it has a {type(s).__name__}; expected loads, maps, folds, dots and plain stores")
    for s in form.epilogue:
        if isinstance(s, Load) and s.via == "descriptor":
            refuse(kernel, f"{s.buffer} is loaded by descriptor behind the walk; expected pointers")
    for loop in form.loops:
        _check_loop(form, loop)
    if form.overlapped:
        _check_overlapped(form)


def _check_loop(form: WalkForm, loop: For) -> None:
    kernel, axis = form.kernel, form.rows_axis
    shared = {s.dst.name: s for s in (*form.held, *brought(loop))}
    tiles = {t.name: t for s in statements(kernel.body) for t in produced(s)}
    if loop.marks and loop.marks not in {s.dst.name for s in form.marking}:
        refuse(kernel, f"{loop.marks} marks iterations of its loop, and is computed; expected a tile that is loaded")
    if loop.marks and form.overlapped:
        refuse(kernel, "its dots overlap, and a tile marks iterations, which may be none; expected one at least")
    for s in loop.body:
        if isinstance(s, For | Store):
            refuse(kernel, f"its loop has a {type(s).__name__}; expected loads, maps, folds and dots")
        if isinstance(s, Dot):
            _check_dot(kernel, s, axis, {n: x.dst for n, x in shared.items()}, tiles)
        elif other := {*read(s)} & shared.keys():
            refuse(kernel, f"{', '.join(sorted(other))} is loaded by descriptor and read by a {type(s).__name__}")
    dots = [s for s in loop.body if isinstance(s, Dot)]
    if len({s.dst.name for s in dots}) < len(dots):
        refuse(kernel, "several dots add to the same sums; expected sums of their own")
    multiplied = {x for s in dots for x in (s.a, s.b)}
    for load in shared.values():
        _check_load(kernel, load)
        if load.dst.name not in multiplied and load not in form.held:
            refuse(kernel, f"no dot reads {load.dst.name}; expected pointers")


def _check_load(kernel: Kernel, load: Load) -> None:
    length = load.dst.shape[-1] * dtype(load.dst.dtype).bytes
    if load.eviction or load.fill:
        refuse(kernel, f"the load of {load.buffer} has an eviction hint or a fill; expected neither")
    if len(load.dst.axes) != 2 or length < WGMMA.row_bytes:
        refuse(kernel, f"{load.dst} is loaded by descriptor; expected two axes and rows of {WGMMA.row_bytes} bytes")


def _check_dot(kernel: Kernel, dot: Dot, axis: str, shared: dict[str, Tile], tiles: dict[str, Tile]) -> None:
    a, b = (tiles[x] for x in sides(dot, tiles))
    if dot.dst.axes[0] != axis or b.name not in shared:
        refuse(kernel, f"{dot.dst.name} is a dot of {a.name} and {b.name}; expected rows {axis}, and columns loaded")
    if a.dtype != b.dtype or dtype(a.dtype).bytes != 2:
        refuse(kernel, f"dot of {a.dtype} and {b.dtype}; expected 16-bit types")
    if dot.dst.shape[1] > WGMMA.widest:
        refuse(kernel, f"{dot.dst.shape[1]} columns of sums; expected at most {WGMMA.widest}")


def _check_overlapped(form: WalkForm) -> None:
    sums = set()
    for loop in form.loops:
        one = Iteration.of(loop, {s.dst.name for s in (*form.held, *brought(loop))})
        if reason := one.why_not_overlapped():
            refuse(form.kernel, reason)
        sums.add(tuple(d.dst for d in one.then))
    if len(sums) > 1:
        refuse(form.kernel, "loops add to different sums; expected the same in the same order")
    if fewest_iterations(form.kernel, form.loops[0]) < 1:
        refuse(form.kernel, f"{form.loops[0].variable} may have no iteration; expected one before dots overlap")
