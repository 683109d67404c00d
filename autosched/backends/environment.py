"""Environment of a measurement besides its kernel: versions of the compilers and of the system that ran it."""

from __future__ import annotations

import importlib.metadata

from autosched.backends.cuda import nvrtc
from autosched.machine import devices
from search_spaces import Target
from tuning_logs import Versions


def environment(target: Target) -> Versions:
    """Versions of everything on this machine that a measurement on the target depends on, as (name, version)."""
    return devices.environment(target, compilers(target))


def compilers(target: Target) -> Versions:
    """Versions of the compilers for a target, which need not be here.

    NVRTC's is that of the library for its capability, as it reports itself.
    """
    if target.kind == "cpu":
        return (("llvmlite", _version("llvmlite")),)
    return (("triton", _version("triton")), ("nvrtc", nvrtc.version_for(target.capability)))


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
