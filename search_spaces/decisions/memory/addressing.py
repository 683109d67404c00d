"""Addresses of loads: aligned to whole vectors, or selected among several before a single load.

Before:  load x[r, c.0*64 : +64]                                rows are unaligned: elements are loaded one by one
After (aligned=True):   load x[r, c.0*64 - skew(r) : +64]       whole vectors, with their ends masked

Before:  y = select(c < 8, load x[8 - c], load x[c - 8])        both are loaded
After (selected=True):  y = load x[select(c < 8, 8 - c, c - 8)] one is, at the selected index

Aligned over-read, loop versioning by alignment (compilers); reflection padding and concatenation by index arithmetic.
"""

from __future__ import annotations

from search_spaces.decisions.decision import Decision
from search_spaces.schedules.knobs import Choice

NAMES = ("aligned", "selected")
WHERE_NOT = "Where rows begin at whole vectors, or nothing is selected among reads of one tensor."


def aligned() -> Decision:
    """Rows as they begin, or from the start of their first vector; the base program is made with it."""
    return Decision(Choice("aligned", (False, True)))


def selected() -> Decision:
    """Several loads, or one at an index that is selected; the base program is made with it."""
    return Decision(Choice("selected", (False, True)), bears_on="nothing")
