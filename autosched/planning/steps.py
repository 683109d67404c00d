"""Steps of a plan: what they read and write, by the numbers of slots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from autosched.backends.backend import BatchLauncher, Place
from autosched.kernels.prepared_constants import PreparedConstants
from search_spaces.workloads.strides import span


@dataclass(frozen=True)
class Layout:
    """Memory of a tensor: shape, strides in elements, element type."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        return max(0, span(self.shape, self.strides)) * self.dtype.itemsize


@dataclass(frozen=True)
class Slot:
    """A tensor of a plan. `layout`: of one that launches write; `within`: its place, as a part of another one."""

    layout: Layout | None = None
    within: Place | None = None


class Launchable(Protocol):
    """A kernel as plans launch it: the part of an `autosched.Kernel` that they need."""

    @property
    def launch(self) -> Callable[..., None]:
        """Takes the addresses of the inputs, then of the outputs, and those of prepared constants if there are any."""

    @property
    def constants(self) -> PreparedConstants | None:
        """Constants in layouts of its own."""

    @property
    def batched(self) -> BatchLauncher | None:
        """The launcher of its launches in batches, which take inputs in `order`; None where each is by itself."""

    @property
    def early(self) -> bool:
        """True if it is to begin while the launch before it ends."""

    @property
    def order(self) -> tuple[int, ...]:
        """The numbers of its inputs in the order of the generated code."""


@dataclass(frozen=True)
class Launch:
    """A launch of a kernel: the places of its inputs, in order, and the slots of its outputs.

    `originals`: of a kernel with prepared constants whose inputs are copies, the places that these are of.
    """

    kernel: Launchable
    reads: tuple[Place, ...]
    writes: tuple[int, ...]
    originals: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Call:
    """A call of anything else.

    `run` takes the tensors of all slots, of which it `reads` some, and replaces those that it `writes`.
    """

    run: Callable[[list[Any]], None]
    reads: tuple[int, ...]
    writes: tuple[int, ...]


Step = Launch | Call
