"""The kernels of one workload in a stand-alone file, in the language of their backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from search_spaces import TileProgram
from search_spaces.programs.tile_program import Kernel


class FileKernels(Protocol):
    """Text of the kernels of `program`.

    `imports` and `functions` are lines and parts of the file, written once for all kernels; `names` are the names that
    they use in the file.
    """

    @property
    def program(self) -> TileProgram: ...

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def imports(self) -> tuple[str, ...]: ...

    @property
    def functions(self) -> tuple[str, ...]: ...

    def launch(self, kernel: Kernel, variables: Mapping[str, str]) -> str:
        """The statement that launches a kernel; `variables` maps the program's tensors to names in the file."""
        ...
