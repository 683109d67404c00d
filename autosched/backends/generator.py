"""Which code generated a kernel: the part of a record's provenance that tells versions of autosched apart.

It decides nothing about a record that says what was compiled (`backends.reproduction`): a comment that was edited
changes it, and no kernel.
"""

from __future__ import annotations

from search_spaces.code_hash import code_hash

_DIGITS = 12


def generator_hash() -> str:
    """12 hexadecimal digits over the text of all code that lowers schedules and prints."""
    return code_hash("search_spaces", "autosched.backends")[:_DIGITS]
