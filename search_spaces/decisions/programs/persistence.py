"""Persistent programs: a few programs per multiprocessor, each of which computes one tile after another.

Before:  grid m.0 in 64, n.0 in 32: body                              2048 programs, a tile each
After (grid=persistent, per_sm=1):  132 programs; program p computes tiles p, p + 132, …
      (grid=persistent_flat):       the loop over tiles and the reduction's are one, so that operands of the next tile
                                    are loaded while this one ends
      (grid=stream_k):              (tile, iteration) pairs in equal shares; shared tiles are added up

Also called grid-stride loops (CUDA), persistent kernels (Triton, CUTLASS), Stream-K (Osama et al., PPoPP 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from search_spaces.decisions.decision import Decision, each_kernel
from search_spaces.programs.statements import For, Statement, mapped
from search_spaces.programs.tile_program import Kernel, TileProgram
from search_spaces.schedules.knobs import Choice, KnobValue, Values
from search_spaces.schedules.rules import Rule

NAMES = ("grid", "per_sm")
WHERE_NOT = (
    "On a CPU, whose threads take ranges of the grid; where parts of a reduction make the programs that are wanted."
)

ONE_TILE, PERSISTENT, FLAT, STREAM_K = "tiles", "persistent", "persistent_flat", "stream_k"
# Programs per multiprocessor: enough to hide latency, few enough to stay resident.
_PER_SM = (1, 2, 3, 4)


@dataclass(frozen=True)
class Units:
    """Units of a device with `per_sm` programs each, by values of `decisions`; undecided ones give the fewest."""

    count: Callable[[Values], int]
    decisions: tuple[str, ...] = ()


def persistence(
    units: Units,
    tiled: Sequence[str],
    tiles: Callable[[Values], int],
    grids: tuple[str, ...] = (ONE_TILE, PERSISTENT),
    dots: bool = False,
) -> tuple[Decision, ...]:
    """Persistent programs or none, and their number: fewer than tiles, or they are none.

    `tiles`: number of tiles by the decisions `tiled`; `dots`: a loop over tiles keeps values that take resources.
    """
    # More tiles than one program per multiprocessor are needed whatever number of programs is decided later.
    known = dict.fromkeys((("grid",), ("grid", "per_sm"), ("grid", "per_sm", *units.decisions)))
    return (
        Decision(
            Choice("grid", grids, ordered=False),
            lambda program, values: _persistent(program, values, units),
            tuple(Rule((*tiled, *names), partial(_why_idle, units, tiles)) for names in known),
            "resources" if dots else "legality",
            partial(_plain, units, tiles),
        ),
        Decision(Choice("per_sm", _PER_SM), rules=(Rule(("grid", "per_sm"), _why_not_counted),), bears_on="legality"),
    )


def _plain(units: Units, tiles: Callable[[Values], int], values: Values) -> Mapping[str, KnobValue]:
    """Programs with at most one tile each are not persistent."""
    return {"grid": ONE_TILE, "per_sm": 1} if _why_idle(units, tiles, values) else {}


def _why_idle(units: Units, tiles: Callable[[Values], int], values: Values) -> str | None:
    # Flattened and streamed loops are other programs however few tiles there are.
    programs = units.count(values) * values.integer("per_sm", 1)
    if values["grid"] != PERSISTENT or (count := tiles(values)) > programs:
        return None
    return f"grid={values['grid']} is for more than {programs} tiles, got {count}"


def _persistent(program: TileProgram, values: Values, units: Units) -> TileProgram:
    if values["grid"] == ONE_TILE:
        return program
    count = units.count(values) * values.integer("per_sm")
    return each_kernel(program, lambda kernel: _walked(kernel, values.word("grid"), count))


def _walked(kernel: Kernel, grid: str, count: int) -> Kernel:
    walked = replace(kernel, grid=replace(kernel.grid, persistent=count))
    if grid == STREAM_K:
        (loop,) = (s for s in kernel.body if isinstance(s, For))
        return replace(walked, grid=replace(walked.grid, stream=(loop.variable, loop.extent)))
    return replace(walked, body=mapped(kernel.body, _flattened)) if grid == FLAT else walked


def _flattened(s: Statement) -> Statement:
    """Flattens an innermost loop."""
    innermost = isinstance(s, For) and not any(isinstance(inner, For) for inner in s.body)
    return replace(s, flatten=True) if isinstance(s, For) and innermost else s


def _why_not_counted(values: Values) -> str | None:
    if values["grid"] == ONE_TILE and values["per_sm"] != 1:
        return "per_sm counts persistent programs; grid=tiles has one per tile"
    return None
