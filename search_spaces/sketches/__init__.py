"""Sketch rules: each module derives a family of schedules from the structure of a workload.

A module here offers `derive(workload, target, offers) -> tuple[Sketch, ...]`; where the structure does not match, it is
empty, or an `UnmatchedError` says why. `offers`: what backends have words for beside what all have. Modules are found
by listing this folder: adding a rule is adding a file.

Imports every other room; only `search_spaces.build` imports it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Protocol, cast

from search_spaces.devices.target import Target
from search_spaces.schedules.limits import Offers
from search_spaces.schedules.space import Sketch
from search_spaces.workloads.workload import Workload


class SketchRule(Protocol):
    """What a module of this package offers."""

    def derive(self, workload: Workload, target: Target, offers: Offers) -> tuple[Sketch, ...]: ...


def rules() -> Iterator[tuple[str, SketchRule]]:
    """Every rule of this folder with its name, alphabetically."""
    # Folders hold what sketches share.
    for module in sorted((m for m in pkgutil.iter_modules(__path__) if not m.ispkg), key=lambda m: m.name):
        yield module.name, cast(SketchRule, importlib.import_module(f"{__name__}.{module.name}"))
