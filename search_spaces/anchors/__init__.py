"""Anchors: what kernels are made around, and the decisions that apply to each; a module derives a sketch of them.

A module here offers `derive(workload, target, offers) -> tuple[Sketch, ...]`; where the structure does not match, it is
empty, or an `UnmatchedError` says why. `offers`: words that some backends have besides those of all. Modules are found
by listing this folder: adding an anchor is adding a file. Rooms hold what its base programs are made of.

Imports every room below; only `search_spaces.build` imports it.
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


class Anchoring(Protocol):
    """A module of this package."""

    def derive(self, workload: Workload, target: Target, offers: Offers) -> tuple[Sketch, ...]: ...


def anchors() -> Iterator[tuple[str, Anchoring]]:
    """Every module that derives sketches with its name, alphabetically."""
    for found in sorted((m for m in pkgutil.iter_modules(__path__) if not m.ispkg), key=lambda m: m.name):
        module = importlib.import_module(f"{__name__}.{found.name}")
        if hasattr(module, "derive"):
            yield found.name, cast(Anchoring, module)
