"""The warp of a walk that brings tiles: those that are held, then those of every iteration."""

from __future__ import annotations

from autosched.backends.printing.scope import Block, Scope, call
from autosched.backends.triton.gluon.walks.form import WalkForm, brought
from autosched.backends.triton.gluon.walks.marks import hold_marks
from autosched.backends.triton.gluon.walks.places import Places
from autosched.backends.triton.gluon.walks.tiles import open_tiles
from autosched.backends.triton.language.index import Indexing
from autosched.backends.triton.language.loops import turns
from autosched.backends.triton.language.marked import open_marked
from autosched.backends.triton.language.scope import python_identifiers
from autosched.backends.triton.printer import KernelPrinter
from search_spaces.programs.statements import For
from search_spaces.programs.tile_program import loop_extents


def producer(form: WalkForm, places: Places, printer: KernelPrinter | None) -> list[str]:
    """The lines of its function; `printer`: of what marks iterations, where something does."""
    root = printer.root if printer else Scope()
    block = printer.block if printer else Block(root)
    indexing = printer.indexing if printer else Indexing(loop_extents(form.moving), python_identifiers(), block)
    block.write("step = 0")
    if form.held:
        block.write("turn = 0")
    open_tiles(form, indexing, root, block)
    if form.held:
        # A barrier that was never used counts as passed for the turn before the first.
        block.write("hopper.mbarrier.wait(held_empty.index(0), turn & 1 ^ 1)")
        block.write(f"hopper.mbarrier.expect(held_full.index(0), {sum(s.dst.bytes for s in form.held)})")
        for load, place in zip(form.held, places.held, strict=True):
            starts = places.starts(load, indexing)
            block.write(call("load_tile", places.descriptor(load), f"[{starts}]", "held_full.index(0)", place))
        block.write("turn += 1")
    if printer:
        for s in form.marking:
            printer.print(s)
        hold_marks(form, printer, form.kernel.launch.producer_warps)
    for loop in form.loops:
        if printer and loop.marks:
            tile = form.tiles[loop.marks]
            open_marked(loop, tile, printer.tiles.name(tile.name), indexing, block, staged=False)
        else:
            block.open(f"for {indexing.variable(loop.variable)} in range({turns(loop, indexing)}):", loop.variable)
        _bring(loop, places, indexing, block)
    return root.text(1)


def _bring(loop: For, places: Places, indexing: Indexing, block: Block) -> None:
    """The rest of a loop, and its end."""
    for load, ring in zip(brought(loop), places.rings, strict=True):
        block.write(f"hopper.mbarrier.wait({ring.empty('step')}, {ring.parity('step')} ^ 1)")
        block.write(f"hopper.mbarrier.expect({ring.full('step')}, {load.dst.bytes})")
        starts = places.starts(load, indexing)
        block.write(call("load_tile", places.descriptor(load), f"[{starts}]", ring.full("step"), ring.slot("step")))
    block.write("step += 1")
    block.close()
