"""Plug-ins: modules that are found by being in a folder, each with one public class of its own; and others' objects."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from typing import Any


def only_class(module_name: str) -> Any:
    """The one public class that a module defines, imported now; the caller knows its arguments.

    Raises:
        TypeError: the module defines none, or several.
    """
    module = importlib.import_module(module_name)
    classes = inspect.getmembers(module, inspect.isclass)
    own = [c for name, c in classes if c.__module__ == module_name and not name.startswith("_")]
    if len(own) != 1:
        found = ", ".join(c.__name__ for c in own) or "none"
        raise TypeError(f"{module_name} is a plug-in and must define one public class; it defines {found}")
    return own[0]


def lacking(made: object, methods: Iterable[str]) -> tuple[str, ...]:
    """The methods that an object lacks, or has with other parameters.

    Each is given as a call: `tell(records, elsewhere=…)`.
    """
    return tuple(call for call in methods if not takes(getattr(made, call.partition("(")[0], None), call))


def takes(function: object, call: str) -> bool:
    """True if `function` can be called like this, or if its signature is unknown, as of some built-in ones."""
    if not callable(function):
        return False
    arguments = [a.strip() for a in call.partition("(")[2].rstrip(")").split(",") if a]
    named = [a.partition("=")[0] for a in arguments if "=" in a]
    try:
        inspect.signature(function).bind(*(a for a in arguments if "=" not in a), **dict.fromkeys(named))
    except ValueError:
        return True
    except TypeError:
        return False
    return True
