"""Validation of parsed JSON: a reader for every kind of value, which refuses all others.

Files come from colleagues and other machines, and may be damaged. Each reader takes the value and its name in messages.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Collection, Iterator
from typing import Any

from search_spaces.errors import DataError
from search_spaces.plain_text import encodable, visible

# The largest integer that databases, arrays and kernels hold.
LARGEST = 2**63 - 1
# Models treat values as floating-point numbers, which end here. It keeps out infinities and NaN, too.
_LARGEST_NUMBER = sys.float_info.max
# So much of a value is shown in an error.
_SHOWN = 60
# Everything else that making an object of parsed data can raise.
_FOREIGN = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)

Scalar = int | float | str | bool | None


@contextlib.contextmanager
def refused_as_data() -> Iterator[None]:
    """Context in which any exception of building an object from parsed data becomes a DataError."""
    try:
        yield
    except DataError:
        raise
    except _FOREIGN as error:
        said = visible(str(error)) or "no reason is told"
        raise DataError(said if isinstance(error, ValueError) else f"{type(error).__name__}: {said}") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise DataError(f"{_text_of(next(n for n in names if names.count(n) > 1))} is given twice")
    return found


def _no_number(name: str) -> float:
    raise DataError(f"{name} is no number of JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_number)


def parsed(text: str | bytes) -> Any:
    """The value of a JSON text in UTF-8, in which no object has two members of one name, and no number is infinite.

    Raises:
        DataError: the text is no such JSON.
    """
    with refused_as_data():
        return _DECODER.decode(text if isinstance(text, str) else text.decode())


def text(value: object, what: str) -> str:
    """Text that can be encoded."""
    if not isinstance(value, str):
        raise _refused(value, what, "text")
    if value.isascii() or encodable(value) == value:
        return value
    raise _refused(value, what, "text that UTF-8 has")


def word(value: object, what: str) -> str:
    """An ASCII letter and more of them, digits and `_`: allowed in names of files."""
    if isinstance(value, str) and value.isascii() and value.isidentifier():
        return value
    raise _refused(value, what, "a word of letters, digits and _")


def whole(value: object, what: str, least: int = 0, most: int = LARGEST) -> int:
    """An integer from `least` to `most`."""
    if type(value) is int and least <= value <= most:
        return value
    raise _refused(value, what, f"an integer from {least} to {most}")


def number(value: object, what: str, least: float = 0.0, most: float = _LARGEST_NUMBER) -> float:
    """A number from `least` to `most`, an integer or not."""
    if isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most:
        return value
    raise _refused(value, what, f"a number from {least:g} to {most:g}")


def truth(value: object, what: str) -> bool:
    if isinstance(value, bool):
        return value
    raise _refused(value, what, "true or false")


def scalar(value: object, what: str) -> Scalar:
    """A finite number, text, true, false or null."""
    if isinstance(value, int | float) and -_LARGEST_NUMBER <= value <= _LARGEST_NUMBER:
        return value
    if isinstance(value, str):
        return text(value, what)
    if value is None:
        return None
    raise _refused(value, what, "a finite number, a text, true, false or null")


def knob_value(value: object, what: str) -> Scalar | tuple[Scalar, ...]:
    """A scalar, or a tuple of them for a list."""
    if not isinstance(value, (list, tuple)):
        return scalar(value, what)
    if {*map(type, value)} == {int} and 0 <= min(value) <= max(value) <= LARGEST:
        return tuple(value)
    return tuple([scalar(part, what) for part in value])


def array(value: object, what: str, sizes: Collection[int] = ()) -> list[Any]:
    """A list; its length is one of `sizes` if these are given."""
    if isinstance(value, list) and (not sizes or len(value) in sizes):
        return value
    raise _refused(value, what, f"a list of {' or '.join(map(str, sizes))} elements" if sizes else "a list")


def members(
    value: object, what: str, needed: Collection[str] = (), optional: Collection[str] | None = None
) -> dict[str, Any]:
    """An object with the `needed` members; if `optional` is given, it has no others than these and the needed ones."""
    if not isinstance(value, dict):
        raise _refused(value, what, "an object")
    if missing := [name for name in needed if name not in value]:
        raise DataError(f"{what}: {', '.join(missing)} is missing")
    if optional is not None and (unknown := value.keys() - {*needed, *optional}):
        names = ", ".join(sorted(map(_text_of, unknown)))
        raise DataError(f"{what}: this version knows no {names}; a later one may have told it")
    return value


def _refused(value: object, what: str, expected: str) -> DataError:
    return DataError(f"{what} {_text_of(value)}, expected {expected}")


def _text_of(value: object) -> str:
    shown = "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else repr(value)
    return visible(shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…")
