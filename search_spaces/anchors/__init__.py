"""Anchors: the computations that kernels are built around, and the decisions that apply to each.

A module here offers `derive(workload, target, offers) -> tuple[Sketch, ...]`; for another structure the result is
empty, or an `UnmatchedError` has the reason. `offers`: capabilities of some backends besides those of all. Modules are
found by listing this folder: adding an anchor is adding a file. Subfolders have the parts of its base programs.
Imports every room below; only `search_spaces.build` imports it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Protocol, cast

from search_spaces.devices.target import Target
from search_spaces.schedules.limits import Offers
from search_spaces.schedules.sketch import Sketch
from search_spaces.workloads.workload import Workload


class Anchoring(Protocol):
    """A module of this package."""

    def derive(self, workload: Workload, target: Target, offers: Offers) -> tuple[Sketch, ...]: ...


def anchors() -> Iterator[tuple[str, Anchoring]]:
    """Every module that derives sketches with its name, alphabetically."""
    for found in sorted((m for m in pkgutil.iter_modules(__path__) if not m.ispkg), key=lambda m: m.name):
        module = importlib.import_module(f"{__name__}.{found.name}")
        if hasattr(module, "derive"):
            yield found.name, cast(Anchoring, module)
