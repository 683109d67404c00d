"""Sketches of contractions, alone and in chains; and every rule by name, those of `anchors` too.

Imports every other room; only `search_spaces.build` imports it.
"""

from __future__ import annotations

from collections.abc import Iterator

from search_spaces import anchors
from search_spaces.anchors import SketchRule


def rules() -> Iterator[tuple[str, SketchRule]]:
    """Every rule with its name, alphabetically."""
    yield from sorted((*anchors.rules(), *anchors.rules(__name__, __path__)), key=lambda rule: rule[0])
