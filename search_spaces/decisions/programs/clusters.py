"""Clusters: thread blocks that compute a part of every tile each, and share their loads.

Before:  grid m.0, n.0: a block has a tile       After (ctas=2):  two blocks of a cluster have half of it each

Thread block clusters (CUDA), `num_ctas` (Triton), `ClusterShape` (CUTLASS).
"""

from __future__ import annotations

from dataclasses import replace

from search_spaces.decisions.decision import Decision, each_launch
from search_spaces.programs.tile_program import TileProgram
from search_spaces.schedules.knobs import Choice, Values

NAMES = ("ctas",)
WHERE_NOT = "Where a device has no clusters, or a loop has several dots: a compiler stops at these."


def clusters(possible: bool) -> Decision:
    """One block or two."""
    return Decision(Choice("ctas", (1, 2) if possible else (1,)), _launched)


def _launched(program: TileProgram, values: Values) -> TileProgram:
    return each_launch(program, lambda launch: replace(launch, num_ctas=values.integer("ctas")))
