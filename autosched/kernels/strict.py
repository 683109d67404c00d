"""The choice that nothing untuned may answer: `strict=True` of a call, or `AUTOSCHED_STRICT=1` for all of a process."""

from __future__ import annotations

import os

from search_spaces import InputError

VARIABLE = "AUTOSCHED_STRICT"


def is_strict(asked: bool = False) -> bool:
    """True if a call asks for it, or the environment.

    Raises:
        InputError: the argument is no bool, or the variable neither "0" nor "1": a misspelt one must not allow
            anything.
    """
    if not isinstance(asked, bool):
        raise InputError(f"strict={asked!r}; expected True or False")
    # Services of continuous integration leave a variable empty that is not set.
    set_to = os.environ.get(VARIABLE) or "0"
    if set_to not in ("0", "1"):
        raise InputError(f"{VARIABLE}={set_to}; expected 0 or 1")
    return asked or set_to == "1"
