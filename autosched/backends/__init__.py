"""Backends print tile programs, compile what they printed, and load what they compiled."""

from __future__ import annotations

from autosched.backends.backend import Artefact, Backend, CompileError, Launcher, LoadError
from search_spaces import Target

__all__ = ["Artefact", "Backend", "CompileError", "Launcher", "LoadError", "for_target"]


def for_target(target: Target) -> Backend:
    """The backend that makes kernels for a target; its compiler is imported only here."""
    if target.kind == "cpu":
        from autosched.backends.llvm.backend import LlvmBackend

        return LlvmBackend()
    from autosched.backends.triton.backend import TritonBackend

    return TritonBackend()
