"""Environment of a measurement besides its kernel: versions of the compilers and of the system that ran it."""

from __future__ import annotations

import importlib.metadata

from autosched.backends.cuda import nvrtc
from autosched.machine import devices
from search_spaces import Target
from tuning_logs import Versions


def environment(target: Target) -> Versions:
    """Versions of everything on this machine that a measurement on the target depends on, as (name, version).

    NVRTC's is that of the library which compiles for the target, as it reports itself.
    """
    if target.kind == "cpu":
        return devices.environment(target, (("llvmlite", _version("llvmlite")),))
    compilers = (("triton", _version("triton")), ("nvrtc", nvrtc.version_for(target.capability)))
    return devices.environment(target, compilers)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
