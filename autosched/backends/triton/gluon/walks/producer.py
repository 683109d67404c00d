"""The warp of a walk that brings tiles: those that are held, then those of every iteration."""

from __future__ import annotations

from autosched.backends.printing.scope import Block, Scope, call
from autosched.backends.triton.gluon.walks.form import WalkForm, brought
from autosched.backends.triton.gluon.walks.places import Places
from autosched.backends.triton.gluon.walks.tiles import open_tiles
from autosched.backends.triton.language.index import Indexing
from autosched.backends.triton.language.loops import turns
from autosched.backends.triton.language.scope import python_identifiers
from search_spaces.programs.statements import For
from search_spaces.programs.tile_program import loop_extents


def producer(form: WalkForm, places: Places) -> list[str]:
    """The lines of its function."""
    root = Scope()
    block = Block(root)
    indexing = Indexing(loop_extents(form.moving), python_identifiers(), block)
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
    for loop in form.loops:
        _bring(loop, places, indexing, block)
    return root.text(1)


def _bring(loop: For, places: Places, indexing: Indexing, block: Block) -> None:
    block.open(f"for {indexing.variable(loop.variable)} in range({turns(loop, indexing)}):", loop.variable)
    for load, ring in zip(brought(loop), places.rings, strict=True):
        block.write(f"hopper.mbarrier.wait({ring.empty('step')}, {ring.parity('step')} ^ 1)")
        block.write(f"hopper.mbarrier.expect({ring.full('step')}, {load.dst.bytes})")
        starts = places.starts(load, indexing)
        block.write(call("load_tile", places.descriptor(load), f"[{starts}]", ring.full("step"), ring.slot("step")))
    block.write("step += 1")
    block.close()
