"""Hash of the code that generated a kernel: it distinguishes versions of autosched in a record's provenance.

It decides nothing about a record with a fingerprint of its source (`backends.reproduction`): editing a comment changes
the hash, and no kernel.
"""

from __future__ import annotations

from search_spaces.code_hash import code_hash

_DIGITS = 12


def generator_hash() -> str:
    """12 hexadecimal digits over the text of all code that lowers schedules and prints."""
    return code_hash("search_spaces", "autosched.backends")[:_DIGITS]
