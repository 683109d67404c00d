"""Sources of dots' operands: shared memory, or registers for results of another dot."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.backends.cuda.dots.stages import Stage
from autosched.backends.cuda.dots.windows import Window


@dataclass(frozen=True)
class Staged:
    """An operand in shared memory, from byte `at` on (a C expression that binds as tightly as a sum)."""

    stage: Stage | Window
    at: str


@dataclass(frozen=True)
class Made:
    """Rows of a product in the registers in which they were computed, `row` and `k` elements from one to the next.

    A thread's columns of an accumulator are then its part of k: two neighbours of every eight (PTX ISA, mma.m16n8k16).
    """

    name: str
    row: int
    k: int


Source = Staged | Made
