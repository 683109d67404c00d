"""The rules, a module each, found by their folder: `RULE` is the module's rule."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from autosched.tracing.capture.capture import Numerics
from autosched.tracing.rewriting.rule import ALLOWED, Rule


@functools.cache
def all_rules() -> tuple[Rule, ...]:
    """The rules of all modules here, by the names of these."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return tuple(importlib.import_module(f"{__name__}.{name}").RULE for name in names)


def rules_for(numerics: Numerics) -> tuple[Rule, ...]:
    """The rules that are exact enough for what a user allows."""
    return tuple(rule for rule in all_rules() if rule.exactness in ALLOWED[numerics])
