"""The kernels of one workload in a stand-alone file: what the file says of them, in the language of their backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from search_spaces import TileProgram
from search_spaces.programs.tile_program import Kernel


class FileKernels(Protocol):
    """`program` is theirs; `imports` and `functions` are lines and parts of the file, each once among those of all
    kernels; `names` are the names in the file that they have taken."""

    @property
    def program(self) -> TileProgram: ...

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def imports(self) -> tuple[str, ...]: ...

    @property
    def functions(self) -> tuple[str, ...]: ...

    def launch(self, kernel: Kernel, variables: Mapping[str, str]) -> str:
        """The statement that launches a kernel; `variables` are the names of tensors, by those of the program."""
        ...
