"""Random PyTorch functions in which rewrites are found: layers that share operands, several readers, constants, views.

The same seed makes the same function and inputs. A function is written out, so that what fails can be read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from program_writer import Program

_TYPES = torch.float32, torch.bfloat16
# Of the numbers of inputs with special values: those that overflow, and those that are no numbers.
_SPECIAL = 0.0, float("nan"), float("inf"), float("-inf"), 1e30
# Steps of a function: enough for several layers of what others have computed.
_STEPS = 9
# Of a matrix [m, n] of the same width as `x`, unless `w` is a weight or `b` a bias that fits.
_STEPS_OF_ONE = (
    "{x}.relu()", "{x} * 0.5", "-{x}", "F.silu({x})", "{x} / 8", "{x}.tanh() * 2", "{x}.softmax(-1)",
    "{x} - {x}.mean(-1, True)", "F.layer_norm({x}, {x}.shape[-1:])", "F.rms_norm({x}, {x}.shape[-1:])",
    "{x}.transpose(0, 1).contiguous().T", "{x}.flip(0)", "{x}.clone()", "{x}.cumsum(0)", "{x} + {x}.sum(0)",
    "{x}[:, torch.arange({x}.shape[1]).flip(0)]", "torch.cat(({x}, {x}), 0)[: len({x})]", "{x} ** 2",
)  # fmt: skip
_OF_TWO = (
    "{x} + {y}", "{x} * {y}", "torch.maximum({x}, {y})", "{x} - 2 * {y}", "torch.where({x} > {y}, {x}, {y})",
    "{x} @ {y}.T @ {y}", "torch.cat(({x}, {y}), 1)[:, : {x}.shape[1]]", "torch.stack(({x}, {y})).sum(0)",
    "F.scaled_dot_product_attention({x}[None, None], {y}[None, None], {x}[None, None])[0, 0]",
)  # fmt: skip
_LAYERS = (
    "{x} @ {w}", "F.linear({x}, {w}.T)", "F.linear({x}, {w}.T, {b})", "torch.addmm({b}, {x}, {w}, beta=0.5)",
    "({x} @ {w}) * {b}", "({x} * {b}) @ {w}", "{x} @ ({w} * 2)", "{x} @ {w} + {b}", "{x} @ {w} @ {w}",
    "({x} @ {w}).relu()", "({x} @ {w}).view(-1, 2, {n} // 2).transpose(0, 1).sum(0).repeat(1, 2)",
    "({x} @ {w}).view(-1, 2, {n} // 2).transpose(1, 2).flatten(1)", "({x} @ {w})[:, : {n} // 2].repeat(1, 2)",
    "torch.cat(({x} @ {w}[:, :2], {x} @ {w}[:, 2:]), 1)",
)  # fmt: skip
_RESULTS = (
    "{x}",
    "{x}",
    "{x}",
    "{x}[:, 1:3]",
    "{x}.T",
    "{x}[-1:]",
    "{x}.sum(0)",
    "{x}.reshape(-1)",
    "({x} @ {w})[:, -1]",
)


@dataclass(frozen=True)
class SharedOperands:
    """A function, as `text` too, an input of it, and the constants that it uses, by name."""

    text: str
    x: Tensor
    constants: dict[str, Tensor]

    @cached_property
    def function(self) -> Callable[[Tensor], tuple[Tensor, ...]]:
        names: dict[str, Any] = {"torch": torch, "F": F, **self.constants}
        exec(self.text, names)
        found: Callable[[Tensor], tuple[Tensor, ...]] = names["function"]
        return found

    def program(self, seed: int) -> Program:
        """The same as a function of x and the constants that it reads."""
        used = {name: tensor for name, tensor in self.constants.items() if name in self.text}
        text = self.text.replace("function(x)", f"program({', '.join(['x', *used])})")
        return Program(seed, text, (self.x, *used.values()), False, {})

    @property
    def in_float64(self) -> SharedOperands:
        constants = {name: tensor.double() for name, tensor in self.constants.items()}
        return SharedOperands(self.text, self.x.double(), constants)


def shared_operands(seed: int, special: bool = False) -> SharedOperands:
    """The function of that seed; `special`: with infinities and NaN among the elements of x."""
    rng = np.random.default_rng(seed)
    kind = _TYPES[int(rng.integers(2))]
    m, n = int(rng.choice((1, 2, 4))), int(rng.choice((4, 8)))
    generator = torch.Generator().manual_seed(seed)
    weights = {f"w{i}": torch.randn(n, n, generator=generator).div(2).to(kind) for i in range(3)}
    biases = {f"b{i}": torch.randn(n, generator=generator).to(kind) for i in range(2)}
    x = torch.randn(m, n, generator=generator).to(kind)
    if special:
        where = torch.rand(x.shape, generator=generator) < 0.1
        x[where] = torch.tensor(_SPECIAL)[torch.randint(5, x.shape, generator=generator)].to(kind)[where]
    lines, known = [], ["x"]

    def one(values: tuple[str, ...] | list[str]) -> str:
        return values[int(rng.integers(len(values)))]

    for number in range(_STEPS):
        # What is read most is what others read: the first values.
        forms = (_LAYERS, _LAYERS, _LAYERS, _STEPS_OF_ONE, _OF_TWO)[int(rng.integers(5))]
        shared, recent = one(known[:3]), one(known)
        names = {"x": shared if forms is _LAYERS else recent, "y": shared, "n": n}
        lines.append(f"v{number} = {one(forms).format(**names, w=one([*weights]), b=one([*biases]))}")
        known.append(f"v{number}")
    results = [name for name in known[1:-1] if rng.random() < 0.25]
    returned = [one(_RESULTS).format(x=name, w=one([*weights])) for name in [*results, known[-1]]]
    body = "".join(f"    {line}\n" for line in [*lines, f"return ({', '.join(returned)},)"])
    return SharedOperands(f"def function(x):\n{body}", x, {**weights, **biases})
