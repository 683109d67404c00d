"""Models of users, as a function of theirs returns them: a callable and its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from search_spaces import InputError

Model = Callable[..., Any]


def model_and_inputs(name: str, made: object) -> tuple[Model, list[Any]]:
    """A user's callable and its inputs, as a function of theirs returned them, after a check.

    Raises:
        InputError: it is not.
    """
    match made:
        case (called, list() | tuple() as inputs) if callable(called):
            return called, list(inputs)
        case (called, given):
            what = f"{type(called).__name__} and {type(given).__name__}"
        case _:
            what = type(made).__name__
    raise InputError(f"{name} returned {what}; expected a callable and a sequence of its inputs")
