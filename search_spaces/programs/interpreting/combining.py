"""The combination of a scan, of two values of every tile, computed with NumPy, for the interpreter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from search_spaces.programs.interpreting.operations import OPERATIONS, Array
from search_spaces.programs.statements import Combination, Map
from search_spaces.workloads.dtypes import is_integer, round_to


def held_as(dtype: str) -> type[np.float32 | np.int64]:
    """The NumPy type of tiles and memory of an element type."""
    return np.int64 if is_integer(dtype) else np.float32


def combined(combine: Combination, left: Sequence[Array], right: Sequence[Array]) -> list[Array]:
    """The combination of values of the tiles, which may be arrays of many elements."""
    given = zip((*combine.left, *combine.right), (*left, *right), strict=True)
    values = {tile.name: x.astype(held_as(tile.dtype)) for tile, x in given}
    for s in combine.body:
        arguments = [values[a] if isinstance(a, str) else np.asarray(a) for a in s.arguments]
        values[s.dst.name] = np.asarray(_mapped(s, arguments), dtype=held_as(s.dst.dtype))
    return [values[name] for name in combine.results]


def _mapped(s: Map, arguments: Sequence[Array]) -> Array:
    if s.operator == "cast":
        return round_to(np.nan_to_num(arguments[0]) if is_integer(s.dst.dtype) else arguments[0], s.dst.dtype)
    types = [held_as(s.computed)] * len(arguments)
    types[0] = np.float32 if s.operator == "where" else types[0]
    return OPERATIONS[s.operator](*(x.astype(t) for x, t in zip(arguments, types, strict=True)))
