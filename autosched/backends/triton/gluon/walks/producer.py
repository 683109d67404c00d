"""The producer of chained dots: tiles that are kept, then those of every iteration."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.backends.printing.scope import Block, Scope
from autosched.backends.triton.gluon.protocol import Protocol
from autosched.backends.triton.gluon.tiles import open_tiles
from autosched.backends.triton.gluon.walks.marks import hold_marks
from autosched.backends.triton.gluon.walks.places import Places
from autosched.backends.triton.language.index import Indexing
from autosched.backends.triton.language.loops import turns
from autosched.backends.triton.language.marked import open_marked
from autosched.backends.triton.language.scope import python_identifiers
from autosched.backends.triton.printer import KernelPrinter
from search_spaces.programs.roles.chains import ChainRoles
from search_spaces.programs.roles.statements import Everywhere, RoleStatement, Steps, Tiles
from search_spaces.programs.statements import Load
from search_spaces.programs.tile_program import loop_extents


def producer(form: ChainRoles, places: Places, printer: KernelPrinter | None) -> list[str]:
    """The lines of its function; `printer`: of what marks iterations, where something does."""
    root = printer.root if printer else Scope()
    block = printer.block if printer else Block(root)
    indexing = printer.indexing if printer else Indexing(loop_extents(form.moving), python_identifiers(), block)
    _write(form.producer.body, form, places.protocol(block, indexing), indexing, root, printer)
    return root.text(1)


def _write(
    body: Sequence[RoleStatement],
    form: ChainRoles,
    protocol: Protocol,
    indexing: Indexing,
    root: Scope,
    printer: KernelPrinter | None,
) -> None:
    block = protocol.block
    for s in body:
        match s:
            case Tiles(body=inner):
                open_tiles(form.kernel.grid, 1, indexing, root, block, *form.variables)
                _write(inner, form, protocol, indexing, root, printer)
            case Load() if printer:
                printer.print(s)
            case Everywhere() if printer:
                hold_marks(s.loads, printer, form.producer.warps)
            case Steps(loop, inner):
                if printer and loop.marks:
                    tile = form.tiles[loop.marks]
                    open_marked(loop, tile, printer.tiles.name(tile.name), indexing, block, staged=False)
                else:
                    variable = indexing.variable(loop.variable)
                    block.open(f"for {variable} in range({turns(loop, indexing)}):", loop.variable)
                _write(inner, form, protocol, indexing, root, printer)
                block.close()
            case _:
                protocol.write(s)
