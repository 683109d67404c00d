"""The instructions in a cubin, by Triton's own disassembler."""

from __future__ import annotations

import subprocess
from pathlib import Path

import triton


def machine_code(cubin: bytes, folder: Path) -> list[str]:
    """Lines of SASS. The folder is written to."""
    path = folder / "kernel.cubin"
    path.write_bytes(cubin)
    command = [str(triton.knobs.nvidia.nvdisasm.path), "-c", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
