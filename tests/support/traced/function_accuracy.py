"""How far functions of float32 numbers are from what they are in float64, in units in the last place."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

from autosched.checking.operations import OPERATIONS
from search_spaces import Axis, Stage, Tensor, Workload
from search_spaces.workloads.expressions.affine import axis_index
from search_spaces.workloads.expressions.expression import Access, Apply
from search_spaces.workloads.expressions.operators import OPERATORS

# What functions treat apart: zeros, infinities, NaN, denormal and the smallest and largest numbers, where exponentials
# leave their range, what is next to 1, whole numbers, and numbers that are hard to reduce by pi.
SPECIAL = [
    *(0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 1e-40, -1e-40, 1.1754944e-38, 3.4e38, -3.4e38),
    *(1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.0, -2.0, 3.0, -3.0, 5.0, 10.0, 100.0, 1000.0, 0.99999994, 1.0000001),
    *(88.7, -88.7, 89.4, -89.4, -104.0, 127.99, 128.0, -126.5, -149.0, -150.0, 9.3, 10.05, -2.457, -10.5),
    *(8191.0, 8192.0, 32768.0, 5419351.0, 1e8, 1e10, 1e16, 2.0**51, 1e22, 1e30, -1e30),
]
# The least difference between float32 numbers, where they have no other.
_LEAST = 2.0**-149


def arguments(operator: str, count: int, seed: int = 0) -> list[torch.Tensor]:
    """Numbers of every size and sign, ordinary ones, powers of two, and the special ones: pairs of all for functions of
    two arguments. `count`: about how many of the first two kinds."""
    rng = np.random.default_rng(seed)
    special = torch.tensor(SPECIAL)

    def drawn() -> torch.Tensor:
        bits = rng.integers(0, 2**32, count, dtype=np.uint32)
        scales = rng.choice([1e-2, 1.0, 4.0, 30.0], count)
        ordinary = (rng.standard_normal(count) * scales).astype(np.float32)
        whole = rng.integers(-30, 31, count // 4).astype(np.float32)
        return torch.from_numpy(np.concatenate([bits.view(np.float32), ordinary, whole]))

    if OPERATORS[operator][0] == 1:
        return [torch.cat([drawn(), 2.0 ** torch.arange(-149.0, 128.0), special])]
    pairs = torch.meshgrid(special, special, indexing="ij")
    return [torch.cat([drawn(), p.flatten()]) for p in pairs]


def workload_of(operator: str, elements: int) -> Workload:
    """The operator of one tensor, or two, of so many elements."""
    names = "xy"[: OPERATORS[operator][0]]
    applied = Apply(operator, tuple(Access(n, (axis_index("i"),)) for n in names))
    inputs = tuple(Tensor(n, (elements,), "float32") for n in names)
    return Workload(operator, inputs, (Stage("out", (Axis("i", elements),), applied),))


def units_off(got: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """The distance from the exact values (float64) in units in the last place of these in float32; infinite where one
    is NaN and the other is not, or where the exact value is infinite in float32 and the other is another number."""
    rounded = exact.float()
    size = torch.from_numpy(np.spacing(rounded.abs().clamp(max=2.0**127).numpy())).double()
    off = (got.double() - exact).abs() / size.clamp(min=_LEAST)
    off = torch.where(
        rounded.isfinite(), off.nan_to_num(nan=math.inf, posinf=math.inf), torch.where(got == rounded, 0.0, math.inf)
    )
    return torch.where(exact.isnan(), torch.where(got.isnan(), 0.0, math.inf), off)


def measured(
    operator: str, computed: Callable[..., torch.Tensor], given: list[torch.Tensor]
) -> tuple[float, list[float]]:
    """The largest distance, and the arguments that it is found for. `computed` gives results of float32 on the CPU."""
    exact = OPERATIONS[operator](*(x.double() for x in given))
    off = units_off(computed(*given), exact)
    worst = int(off.argmax())
    return float(off[worst]), [float(x[worst]) for x in given]
