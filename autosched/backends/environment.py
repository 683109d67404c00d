"""What a measurement depends on beside its kernel: what compiled it, and what ran it."""

from __future__ import annotations

import importlib.metadata

from autosched.backends.cuda import nvrtc
from autosched.machine import devices
from search_spaces import Target
from tuning_logs import Versions


def environment(target: Target) -> Versions:
    """Versions of everything on this machine that a measurement on the target depends on, as (name, version).

    Of NVRTC that of the library which compiles for the target, as it tells itself.
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
