"""Programmatic dependent launch: a kernel whose threads are on the device before its predecessor has ended.

Every kernel for a device that has it begins with two instructions: the next kernel may be launched once all blocks of
this one run, and this one goes on when all before it have ended, with their results in memory. So whatever a kernel
reads or writes is ordered as without, and transitively so: it ends after those before it. Launched the usual way, both
instructions do nothing (PTX ISA, "griddepcontrol").
"""

from __future__ import annotations

import re

from autosched.backends.backend import CompileError
from search_spaces import Target
from search_spaces.devices.features import EARLY_LAUNCH

_INSTRUCTIONS = ("griddepcontrol.launch_dependents;", "griddepcontrol.wait;")


def launches_early(target: Target) -> bool:
    """True if kernels for a device can be launched while those before them run."""
    return target.features.has(EARLY_LAUNCH)


def ptx_that_waits(ptx: str) -> str:
    """The PTX of a kernel, which waits for those before it first of all.

    Raises:
        CompileError: it has no kernel.
    """
    return _begun_with(ptx, r"\.entry\b[^{]*\{", "\n".join(["", *_INSTRUCTIONS, ""]))


def cuda_that_waits(text: str) -> str:
    """The CUDA C++ of kernels, each of which waits for those before it first of all.

    Raises:
        CompileError: it has no kernel.
    """
    statements = " ".join(f'asm volatile("{i}" ::: "memory");' for i in _INSTRUCTIONS)
    # On the line of the brace: messages of the compiler have the line numbers of the text.
    return _begun_with(text, r"__global__\b[^{]*\{", f" {statements}")


def _begun_with(text: str, head: str, added: str) -> str:
    made, count = re.subn(head, lambda found: found[0] + added, text)
    if not count:
        raise CompileError("the code holds no kernel that could wait for those before it")
    return made
