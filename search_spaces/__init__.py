"""The computation, the device, and every way to compute it: workloads, targets, search spaces, tile programs."""

from search_spaces.build import build, why_no_schedule
from search_spaces.devices.target import Target, target_named
from search_spaces.errors import (
    AutoschedError,
    DataError,
    EmptySearchSpaceError,
    InputError,
    LogError,
    OutOfMemoryError,
    TargetUnavailableError,
)
from search_spaces.programs.tile_program import TileProgram
from search_spaces.schedules.schedule import Schedule
from search_spaces.schedules.sketch import Sketch
from search_spaces.schedules.space import SearchSpace
from search_spaces.workloads.workload import Axis, Reduction, Scan, Stage, Tensor, Workload

__all__ = [
    "AutoschedError",
    "Axis",
    "DataError",
    "EmptySearchSpaceError",
    "InputError",
    "LogError",
    "OutOfMemoryError",
    "Reduction",
    "Scan",
    "Schedule",
    "SearchSpace",
    "Sketch",
    "Stage",
    "Target",
    "TargetUnavailableError",
    "Tensor",
    "TileProgram",
    "Workload",
    "build",
    "target_named",
    "why_no_schedule",
]
