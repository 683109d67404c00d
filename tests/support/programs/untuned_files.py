"""Kernels of stand-alone files without a search: any legal schedule that Triton's interpreter can run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autosched.standalone.tuned import Tuned
from best_spaces import build
from search_spaces import Schedule, Workload, target_named
from search_spaces.programs.statements import Load, Store, statements
from search_spaces.programs.tile_program import TileProgram
from tuning_logs import Measurement, Provenance, TuningRecord

H200 = target_named("h200")


def tuned(workload: Workload, wanted: Callable[[Schedule], bool] = lambda schedule: True) -> Tuned:
    """As if the first schedule drawn that is wanted had been the best, among those that the interpreter can run."""
    space, rng = build(workload, H200), np.random.default_rng(0)
    drawn = (s for _ in range(2000) for s in [space.sample(rng)] if wanted(s))
    schedule = next(s for s in drawn if interpretable(s.program))
    versions = (("torch", "2.9"), ("triton", "3.6"))
    provenance = Provenance("0123456789ab", "cold", 0.0, 0, 0, versions)
    return Tuned.of(
        TuningRecord(workload, H200, schedule, Measurement("ok", (12.34e-6,)), provenance), schedule, workload
    )


def interpretable(program: TileProgram) -> bool:
    """Triton's interpreter knows no Gluon, and no atomic addition by descriptor."""
    moves = [s for k in program.kernels for s in statements(k.body) if isinstance(s, Load | Store)]
    added = any(isinstance(s, Store) and s.atomic and s.via == "descriptor" for s in moves)
    return not added and not any(k.launch.producer_warps for k in program.kernels)


def by_pointers(schedule: Schedule) -> bool:
    moves = [s for k in schedule.program.kernels for s in statements(k.body) if isinstance(s, Load | Store)]
    return all(s.via == "pointer" for s in moves)
