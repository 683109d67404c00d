"""Register tiles of dots on a CPU: the part of a product that stays in vector registers over a main loop.

Before:  for i, j: for k: c[i, j] += a[i, k] * b[k, j]
After (register=8x16):  for i in 0, 8, …: for j in 0, 16, …: for k: c[i : +8, j : +16] += a[i : +8, k] * b[k, j : +16]

Also called microtile or microkernel (BLIS), register blocking (GotoBLAS), the innermost tile (Ansor's SSRSRS).
"""

from __future__ import annotations

from collections.abc import Collection

from search_spaces.decisions.decision import Decision
from search_spaces.devices.target import Target
from search_spaces.schedules.knobs import Choice, KnobValue, Values
from search_spaces.schedules.rules import Rule

NAMES = ("register", "inner_register", "carried_register")
WHERE_NOT = "On a GPU, where compilers give threads their parts of a tile; on a CPU where there is no dot."

# Register tiles (rows, vectors per row); which of them fit depends on the registers that the CPU has.
REGISTER_ROWS = (1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 13, 14, 16, 20, 24, 28)
REGISTER_VECTORS = (1, 2, 3, 4)
# Fewer accumulators than this leave multiply-add units idle: latency 4, two started per cycle.
MIN_ACCUMULATORS = 8
# Multiply-adds in the innermost loop: more take longer to compile and leave the cache of decoded instructions.
MAX_LOOP_BODY = 112


def register_tiles(heights: Collection[int], target: Target) -> tuple[KnobValue, ...]:
    """(rows, columns), wide ones last; of those too small to keep a core busy only the tallest of each width."""
    tallest = max(heights)
    found = [
        (r, v * target.lanes) for v in REGISTER_VECTORS for r in heights if r * v >= MIN_ACCUMULATORS or r == tallest
    ]
    return tuple(t for t in found if _registers(t, target) <= target.registers_per_sm + target.registers_per_sm // 4)


def register_tiling(name: str, values: tuple[KnobValue, ...], target: Target) -> Decision:
    """One of these (rows, columns) that fits the registers, unrolled while its loop stays in the cache of instructions.

    The base program is made with it.
    """

    def why_too_many(values: Values) -> str | None:
        return why_too_many_registers(target, values.tiling(name))

    def why_long(values: Values) -> str | None:
        return _why_long_body(target, values.tiling(name), values.integer("unroll"))

    rules = Rule((name,), why_too_many), Rule((name, "unroll"), why_long)
    return Decision(Choice(name, values), rules=rules)


def why_too_many_registers(target: Target, tile: tuple[int, ...]) -> str | None:
    rows, columns = tile
    need = _registers((rows, columns), target)
    if need > target.registers_per_sm:
        return (
            f"register tile {rows}x{columns} needs {need} vector registers; {target.name} has {target.registers_per_sm}"
        )
    return None


def _why_long_body(target: Target, tile: tuple[int, ...], unroll: int) -> str | None:
    rows, columns = tile
    body = rows * (columns // target.lanes) * unroll
    if unroll > 1 and body > MAX_LOOP_BODY:
        return f"{body} multiply-adds in the innermost loop; at most {MAX_LOOP_BODY} are allowed"
    return None


def _registers(tile: tuple[int, int], target: Target) -> int:
    """Accumulators, one row of b, and one broadcast element of a are in registers at once."""
    rows, vectors = tile[0], tile[1] // target.lanes
    return rows * vectors + vectors + 1
