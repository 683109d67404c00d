"""Names of generated Python text, and the reserved ones."""

from __future__ import annotations

import keyword

from autosched.backends.printing.scope import Identifiers, valid_identifier

# Names in generated functions themselves.
_RESERVED = frozenset(
    {*keyword.kwlist, "tl", "gl", "triton", "gluon", "hopper", "load_tile", "store_tile", "float", "range"}
    | {"pid", "tile", "first", "height", "pair", "pair_end", "turn", "turn_end", "ring", "piece", "extras"}
)


def python_identifiers() -> Identifiers:
    """Identifiers of a function, none given yet."""
    return Identifiers(_RESERVED)


def identifier(text: str) -> str:
    """`text` as an identifier that begins with a letter and is not reserved: `m.0` becomes `m_0`, `for` `for_`."""
    return valid_identifier(text, _RESERVED)
