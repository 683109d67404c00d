"""Contractions with windows whose pixels im2col descriptors copy, small and of every kind; and their schedules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np

from autosched.backends import spaces
from autosched.backends.cuda.backend import CudaBackend
from convolutions import block, convolution, weights_gradient
from search_spaces import Schedule, SearchSpace, Target, Workload, target_named
from search_spaces.schedules.knobs import KnobValue

H100 = target_named("h100")
# So few units that persistent programs have several tiles each.
SMALL = replace(H100, num_sms=4)

WINDOWS: dict[str, Workload] = {
    "3x3": convolution((9, 7), (3, 3), 64, 64, batch=3, padding=1, dtype="bfloat16"),
    "3x5, no padding": convolution((9, 12), (3, 5), 64, 72, batch=2),
    "stride 2": convolution((11, 14), (3, 3), 64, 64, batch=3, stride=2, padding=1, dtype="bfloat16"),
    "stride 3, one image": convolution((23, 20), (3, 3), 32, 64, stride=3, padding=2),
    "dilation 2": convolution((12, 9), (3, 3), 64, 128, batch=2, dilation=2, padding=2, dtype="bfloat16"),
    "more channels": convolution((7, 7), (3, 3), 136, 64, batch=4, padding=1),
    "one row": convolution((200,), (5,), 64, 64, batch=2, padding=2),
    "one row of one image, stride 2": convolution((301,), (3,), 32, 64, stride=2, padding=1, dtype="bfloat16"),
    "volumes": convolution((5, 6, 7), (3, 3, 3), 64, 64, batch=2, padding=1),
    "groups": convolution((8, 9), (3, 3), 128, 128, batch=2, padding=1, groups=2, dtype="bfloat16"),
    "tiny images": convolution((2, 2), (3, 3), 64, 64, batch=70, padding=1, dtype="bfloat16"),
    "integers": convolution((9, 7), (3, 3), 64, 64, batch=2, padding=1, dtype="int8"),
    "float32": convolution((9, 7), (3, 3), 64, 64, batch=2, padding=1, dtype="float32", precision="tf32"),
    "block": block(convolution((9, 7), (3, 3), 64, 64, batch=2, padding=1)),
    "weights": weights_gradient(3, 9, 64, 128),
    "weights, stride 2": weights_gradient(4, 7, 64, 64, stride=2),
}


@lru_cache
def windows_of(workload: Workload, target: Target = SMALL, **fixed: tuple[KnobValue, ...]) -> SearchSpace:
    """The schedules that read one operand by an im2col descriptor; `fixed`: values of other decisions."""
    whole = spaces.build(workload, target, [CudaBackend()]).restricted("contraction")
    knobs = {k.name: k.values for k in whole.sketches[0].knobs}
    side = next(x for x in ("a_load", "b_load") if "im2col" in knobs[x])
    others = {name: list(values) for name, values in fixed.items()}
    # Dots of 32 bits read weights along k only.
    others |= {"b_load": ["transposed"]} if "transposed" in knobs["b_load"] else {}
    return whole.restricted("contraction", **{side: ["im2col"], **others})


def drawn(workload: Workload, count: int, seed: int = 0, **fixed: tuple[KnobValue, ...]) -> Iterator[Schedule]:
    """So many of these schedules."""
    rng = np.random.default_rng(seed)
    return (windows_of(workload, **fixed).sample(rng) for _ in range(count))
