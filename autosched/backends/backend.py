"""Protocol of a backend: it prints tile programs, compiles the sources, and loads the binaries.

`render` and `compile` run in compile workers, which never touch a device; `load` runs where the kernel will run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from search_spaces import Target, TileProgram
from search_spaces.plug_ins import lacking
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

    `binaries` has one object per kernel of the program (all in one on the CPU); `facts` are the compiler's report;
    `launch` is the data of the backend's own `load`, as JSON text.
    """

    backend: str
    source: str
    binaries: tuple[bytes, ...]
    facts: CompileFacts
    launch: str

    @property
    def binary_hash(self) -> str:
        """64 hexadecimal digits over the binaries, each with its length."""
        hashed = hashlib.sha256()
        for binary in self.binaries:
            hashed.update(len(binary).to_bytes(8) + binary)
        return hashed.hexdigest()


class Launcher(Protocol):
    """A loaded tile program. It allocates workspaces itself, and serves any number of threads and streams at once.

    Prepared workspaces are made anew by every call that is not given them.
    """

    def __call__(self, buffers: Sequence[torch.Tensor]) -> None:
        """Run it on the inputs in order, then the outputs."""
        ...

    def launch(self, addresses: Sequence[int], prepared: Sequence[int] = ()) -> None:
        """The same, given the addresses of such tensors: for kernels that have checked them already.

        `prepared`: the addresses of all prepared workspaces, which `prepare` has filled: only the rest runs.
        """
        ...

    def prepare(self, number: int, constant: int, memory: torch.Tensor | None = None) -> torch.Tensor:
        """Fill the prepared workspace of this number from the constant at an address; returns its memory.

        In the given `memory` of an earlier call, or in new memory.
        """
        ...

    def unload(self) -> None:
        """Give back the code and the workspaces; the launcher may not be called afterwards."""
        ...


# A base, by its number, and a number of bytes from its address.
Place = tuple[int, int]


@dataclass(frozen=True)
class PlacedLaunch:
    """A launch of a batch: the places of its inputs, then of its outputs, and of so many bytes for its workspaces.

    `prepared`: the places of all prepared workspaces, if they are filled before: only the rest runs. `early`: it begins
    while the launch before it ends, where the device can do that.
    """

    launcher: BatchLauncher
    places: tuple[Place, ...]
    workspace: Place
    prepared: tuple[Place, ...] = ()
    early: bool = False


class Batch(Protocol):
    """Launches that are laid out together: a call only has to fill in addresses."""

    def __call__(self, addresses: Sequence[int]) -> None:
        """Run all of them, in order, with the bases at these addresses."""
        ...

    def graph(self) -> Callable[[Sequence[int]], None]:
        """The same by one launch; calls on several streams must not share what they write."""
        ...


@runtime_checkable
class BatchLauncher(Protocol):
    """A launcher whose launches can be laid out together with those of others of its class."""

    def workspace_bytes(self, prepared: bool) -> int:
        """Bytes for the workspaces of a launch in a batch; with `prepared` ones, for the rest of them."""
        ...

    def batch(self, launches: Sequence[PlacedLaunch]) -> Batch:
        """The launches as one; all of them are on one device."""
        ...


class Backend(Protocol):
    """A printer with its compiler. Stateless: the same program and target give the same text."""

    @property
    def name(self) -> str:
        """Its name in records."""
        ...

    @property
    def limits(self) -> Limits:
        """Limits on the programs that it can make kernels of, on the targets that it serves."""
        ...

    def serves(self, target: Target) -> bool:
        """True if it makes kernels for such devices."""
        ...

    def why_unavailable(self, target: Target) -> str | None:
        """Reason that it cannot compile for such a device on this machine, with the command that mends it; or None."""
        ...

    def render(self, program: TileProgram, comment: str, target: Target) -> str:
        """The source text for a target; `comment` (the schedule) is placed at its top.

        Raises CompileError for a program that it cannot express.
        """
        ...

    def compile(self, source: str, program: TileProgram, target: Target) -> Artefact:
        """Compile the text that `render` gave for `program`. Raises CompileError."""
        ...

    def load(self, artefact: Artefact, program: TileProgram) -> Launcher:
        """Make it callable in this process. Raises LoadError."""
        ...


# Of another package's launcher a search needs the calls alone; the others are needed by a kernel, hours later.
_OF_LAUNCHERS = ("launch(addresses, prepared)", "prepare(number, constant, memory)", "unload()")


def load(backend: Backend, artefact: Artefact, program: TileProgram) -> Launcher:
    """The launcher of a backend.

    Raises:
        LoadError: as `backend.load`; or the launcher lacks a method.
    """
    launcher = backend.load(artefact, program)
    if missing := lacking(launcher, _OF_LAUNCHERS):
        raise LoadError(f"the launcher {launcher!r} of the backend {backend.name!r} has no {', no '.join(missing)}")
    return launcher
