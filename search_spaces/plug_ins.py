"""Plug-ins: modules that are found by being in a folder, each with one public class of its own."""

from __future__ import annotations

import importlib
import inspect
from typing import Any


def only_class(module_name: str) -> Any:
    """The one public class that a module defines, imported now; its caller knows what it is called with.

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
