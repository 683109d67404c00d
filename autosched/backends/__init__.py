"""Backends print tile programs, compile the sources, and load the binaries.

A few come with autosched. Another package adds one by an entry point of the group `autosched.backends`, from its name
to its class:

    [project.entry-points."autosched.backends"]
    mine = "my_package:MyBackend"

Imports `machine`; knows nothing of search, logs' places or PyTorch functions.
"""

from __future__ import annotations

import functools
from importlib.metadata import EntryPoint, entry_points

from autosched.backends.backend import Artefact, Backend, CompileError, Launcher, LoadError, load
from search_spaces import InputError, Target, TargetUnavailableError
from search_spaces.errors import did_you_mean
from search_spaces.plug_ins import lacking

__all__ = [
    "Artefact",
    "Backend",
    "CompileError",
    "Launcher",
    "LoadError",
    "for_target",
    "import_own",
    "load",
    "named",
    "usable",
    "why_not_serving",
]

_GROUP = "autosched.backends"
_OF_BACKENDS = (
    "serves(target)",
    "why_unavailable(target)",
    "render(program, comment, target)",
    "compile(source, program, target)",
    "load(artefact, program)",
)
# Best first. Their modules are imported on demand.
_OWN = (
    EntryPoint("triton", "autosched.backends.triton.backend:TritonBackend", _GROUP),
    EntryPoint("cuda", "autosched.backends.cuda.backend:CudaBackend", _GROUP),
    EntryPoint("llvm", "autosched.backends.llvm.backend:LlvmBackend", _GROUP),
)


def for_target(target: Target) -> tuple[Backend, ...]:
    """All backends that make kernels for a target, best first: those that come with autosched, then others."""
    return tuple(backend for name in _installed() if (backend := named(name)).serves(target))


def usable(target: Target, name: str | None = None) -> tuple[Backend, ...]:
    """The backends, or the one of that name, that make kernels for a target and can compile them on this machine.

    Raises:
        InputError: the named one is not installed, or makes no kernels for such devices.
        TargetUnavailableError: it, or every one of them, lacks something; the message says what to do.
    """
    asked = for_target(target)
    if name is not None:
        if reason := why_not_serving(target, name):
            raise InputError(reason)
        asked = tuple(backend for backend in asked if backend.name == name)
    lacking = {backend.name: backend.why_unavailable(target) for backend in asked}
    able = tuple(backend for backend in asked if lacking[backend.name] is None)
    if asked and not able:
        reasons = "; ".join(f"backend {name!r}: {reason}" for name, reason in lacking.items())
        raise TargetUnavailableError(f"nothing here compiles for {target.label}: {reasons}")
    return able


def why_not_serving(target: Target, name: str) -> str | None:
    """Reason that the backend of that name makes no kernels for a target, with those that do; or None.

    Raises:
        InputError: none of that name is installed.
    """
    if named(name).serves(target):
        return None
    where = f" (sm_{target.capability})" if target.kind == "gpu" else ""
    expected = " or ".join(repr(backend.name) for backend in for_target(target))
    others = expected or "another target: none makes them"
    return f"backend {name!r} makes no kernels for {target.label}{where}; expected {others}"


def named(name: str) -> Backend:
    """The backend of that name, as in records.

    Raises:
        InputError: none of that name is installed, or its class lacks a method.
    """
    installed = _installed()
    if not isinstance(name, str) or name not in installed:
        raise InputError(
            f"backend {name!r} is not installed; expected one of {', '.join(sorted(installed))}, "
            f"or a package with that entry point of {_GROUP}{did_you_mean(name, installed)}"
        )
    backend: Backend = installed[name].load()()
    if installed[name] not in _OWN and (missing := lacking(backend, _OF_BACKENDS)):
        raise InputError(f"backend {name!r}: {type(backend).__name__} has no {', no '.join(missing)}")
    return backend


def import_own() -> None:
    """Import the backends that come with autosched, for processes that are forked from this one."""
    for entry in _OWN:
        entry.load()


# Reading the installed packages takes milliseconds, and gives the same as long as a process lives.
@functools.cache
def _installed() -> dict[str, EntryPoint]:
    """By name, best first; another package's backend with a name of ours is ignored."""
    return {e.name: e for e in (*_OWN, *sorted(entry_points(group=_GROUP)), *_OWN)}
