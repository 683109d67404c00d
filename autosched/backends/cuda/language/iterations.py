"""Iterations of a loop as a block counts them, as C++ text.

    for (int k_0 = 0; k_0 < 64; ++k_0) {                            the counter is the loop's variable

    for (int c0_0_turn = 0; c0_0_turn < c0_0_count; ++c0_0_turn) {  it numbers the iterations that a tile marks, which
        const int c0_0 = c0_0_marked[c0_0_turn];                    are listed in shared memory

Whatever loads tiles for later iterations counts on, and so loads those of the iterations that come.
"""

from __future__ import annotations

from dataclasses import dataclass

from autosched.backends.cuda.language.scope import open_braces
from autosched.backends.printing.scope import Block
from search_spaces.programs.statements import For


@dataclass(frozen=True)
class Iterations:
    """The values of `counter` from `first` below `end`.

    `variables`: the program's variables that an iteration sets; `definitions`: lines that do, where these are not the
    counter.
    """

    counter: str
    first: str
    end: str
    variables: tuple[str, ...]
    definitions: tuple[str, ...] = ()

    def open(self, block: Block, header: str, footer: str = "}") -> None:
        """Start a block in which the counter has a value."""
        scope = block.open(f"{header} {{", *self.variables, footer=footer)
        scope.definitions += self.definitions

    def open_loop(self, block: Block, first: str, end: str, unroll: int = 0) -> None:
        """Start the loop over some of them."""
        pragma = f"#pragma unroll {unroll}\n" if unroll else ""
        self.open(block, f"{pragma}for (int {self.counter} = {first}; {self.counter} < {end}; ++{self.counter})")

    def open_copy(self, block: Block, condition: str) -> None:
        """Start a block for the copies of an iteration, if there is one."""
        open_braces(block, f"if ({condition})").definitions += self.definitions


def nested(loop: For) -> For | None:
    """The loop with all of its iterations that is the body of another one: both count as one."""
    match loop.body:
        case (For(bound=None, useful=(), until=(), since=(), marks="") as inner,):
            return inner
        case _:
            return None


def as_one(loop: For) -> For:
    """A loop and the one that is its body, if any."""
    inner = nested(loop)
    if inner is None:
        return loop
    stages = max(loop.pipeline_stages, inner.pipeline_stages)
    return For(loop.variable, loop.extent * inner.extent, inner.body, stages, marks=loop.marks)
