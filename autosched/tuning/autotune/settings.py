"""Settings of a kernel's tuning: the arguments of `autotune`, checked."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Function of a call and quantiles: milliseconds, one figure or one for each quantile.
DoBench = Callable[..., Any]


@dataclass(frozen=True)
class Hooks:
    """Hooks that Triton calls around trials, and never around calls.

    `before(arguments, reset_only=…)` and `after(arguments, exception=…)`.
    """

    before: Callable[..., object] | None = None
    after: Callable[..., object] | None = None


@dataclass(frozen=True)
class TuningSettings:
    """`key`, `trials`, `seed`, `log` and `history` as given.

    `zeroed` arguments are set to zero before each trial; of the others those in `restored` are restored, or (None) all
    that the kernel changes. `outputs` are compared, or (None) all restored ones. `do_bench` times, if it is given.
    `strict` refuses calls that the log has no finished search for.
    """

    key: tuple[str, ...]
    trials: int
    seed: int
    log: Path
    outputs: Collection[str] | None
    zeroed: Collection[str]
    restored: Collection[str] | None
    hooks: Hooks
    do_bench: DoBench | None
    history: tuple[Path, ...] = ()
    strict: bool = False
