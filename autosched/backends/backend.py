"""What a backend is: it prints tile programs, compiles what it printed, and loads what it compiled.

`render` and `compile` run in compile workers, which never touch a device; `load` runs where the kernel will run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from search_spaces import Target, TileProgram
from search_spaces.schedules.limits import Limits
from tuning_logs import CompileFacts

if TYPE_CHECKING:
    import torch


class CompileError(Exception):
    """The compiler rejected the source; the message is the compiler's own."""


class LoadError(Exception):
    """The device refused the binary (too much shared memory, too many registers, a foreign architecture)."""


@dataclass(frozen=True)
class Artefact:
    """A compiled tile program, ready to be sent to the process that runs it.

    `binaries` holds one object per kernel of the program (all in one on the CPU); `facts` is what the compiler said;
    `launch` is what the backend's own `load` needs, as JSON text.
    """

    backend: str
    source: str
    binaries: tuple[bytes, ...]
    facts: CompileFacts
    launch: str


class Launcher(Protocol):
    """A loaded tile program. It allocates workspaces itself, and serves any number of threads and streams at once."""

    def __call__(self, buffers: Sequence[torch.Tensor]) -> None:
        """Run it on the inputs in order, then the outputs."""
        ...

    def launch(self, addresses: Sequence[int]) -> None:
        """The same, given the addresses of such tensors: what a kernel calls that has looked at them already."""
        ...

    def unload(self) -> None:
        """Give back the code and the workspaces; the launcher may not be called afterwards."""
        ...


class Backend(Protocol):
    """A printer with its compiler. Stateless: the same program and target give the same text."""

    @property
    def name(self) -> str:
        """What records call it."""
        ...

    @property
    def limits(self) -> Limits:
        """What it can make kernels of, on the targets that it serves."""
        ...

    def serves(self, target: Target) -> bool:
        """Whether it makes kernels for such devices."""
        ...

    def why_unavailable(self, target: Target) -> str | None:
        """What it lacks on this machine to compile for such a device, with the command that mends it; or None."""
        ...

    def render(self, program: TileProgram, comment: str, target: Target) -> str:
        """The source text for a target; `comment` (the schedule) stands at its top.

        Raises CompileError for what it cannot say.
        """
        ...

    def compile(self, source: str, program: TileProgram, target: Target) -> Artefact:
        """Compile the text that `render` gave for `program`. Raises CompileError."""
        ...

    def load(self, artefact: Artefact, program: TileProgram) -> Launcher:
        """Make it callable in this process. Raises LoadError."""
        ...
