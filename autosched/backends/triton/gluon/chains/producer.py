"""The producer of chained dots: resident tiles, then those of every iteration."""

from __future__ import annotations

from autosched.backends.printing.scope import Block, Scope
from autosched.backends.triton.gluon.chains.marks import hold_marks
from autosched.backends.triton.gluon.chains.places import Places
from autosched.backends.triton.gluon.role_bodies import RoleBody
from autosched.backends.triton.language.index import Indexing
from autosched.backends.triton.language.loops import first_and_end
from autosched.backends.triton.language.scope import python_identifiers
from autosched.backends.triton.printer import KernelPrinter
from search_spaces.programs.roles.chains import ChainRoles
from search_spaces.programs.roles.statements import Everywhere, RoleStatement
from search_spaces.programs.statements import Load
from search_spaces.programs.tile_program import loop_extents


def producer(roles: ChainRoles, places: Places, printer: KernelPrinter | None) -> list[str]:
    """The lines of its function; `printer`: of block masks, if the chain has some."""
    root = printer.root if printer else Scope()
    block = printer.block if printer else Block(root)
    indexing = printer.indexing if printer else Indexing(loop_extents(roles.moving), python_identifiers(), block)

    def own(s: RoleStatement) -> bool:
        if printer and isinstance(s, Load):
            printer.print(s)
        elif printer and isinstance(s, Everywhere):
            hold_marks(s.loads, printer, roles.producer.warps)
        else:
            return False
        return True

    protocol, marks = places.protocol(block, indexing), places.marks(printer) if printer else None
    body = RoleBody(
        roles, root, indexing, protocol, own, lambda loop: first_and_end(loop, indexing), marks, roles.variables
    )
    body.write(roles.producer.body)
    return root.text(1)
