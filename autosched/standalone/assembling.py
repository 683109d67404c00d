"""A stand-alone file put together: its leading comment, its imports, and the helpers that its functions call."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autosched.backends.printing.quoting import comment
from autosched.backends.printing.scope import Identifiers
from autosched.backends.triton.language.scope import python_identifiers
from autosched.backends.triton.source import is_gluon
from autosched.machine.policies import policy_text
from autosched.standalone.called_functions import CALLED
from autosched.standalone.launchers import CHECK, FileKernels, LauncherKey, call_of, launcher
from autosched.standalone.triton_kernels import DESCRIPTOR, GLUON_DESCRIPTOR
from autosched.standalone.tuned import Tuned, file_kernels
from search_spaces import Workload
from search_spaces.programs.text import to_text
from tuning_logs.text import duration_text

# Imports of a file, each if its text matches the pattern.
_IMPORTS = (
    (r"base64\.", "import base64"),
    (r"ctypes\.", "import ctypes"),
    (r"functools\.", "import functools"),
    (r"math\.", "import math"),
    (r"pathlib\.", "import pathlib"),
    (r"sys\.", "import sys"),
    (r"weakref\.", "import weakref"),
    (r"zlib\.", "import zlib"),
)
_DESCRIPTORS = (
    (rf"\b{DESCRIPTOR}\(", f"from triton.tools.tensor_descriptor import {DESCRIPTOR}"),
    (
        rf"\b{GLUON_DESCRIPTOR}\(",
        f"from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as {GLUON_DESCRIPTOR}",
    ),
)
# By the backends of kernels: the language, and a file's requirements besides PyTorch.
_LANGUAGES = {"triton": "Triton", "cuda": "CUDA"}
_NEEDED = {"triton": "Triton 3.6 to 3.9", "cuda": "cuda-bindings with NVRTC"}
# For GPUs below this compute capability: CUDA 12, the last version that compiles for them.
_NEEDED_BY_VOLTA, _TURING = "cuda-bindings 12 with NVRTC 12", 75
# Names at the top of every file that no other function or argument may have; its helpers' begin with "_".
RESERVED = ("torch", "math", "sys", "functools", "pathlib", "weakref", "triton", "tl", DESCRIPTOR, GLUON_DESCRIPTOR)

# Python's functions that every file calls: none of its own may have these names.
_CALLED = ("any", "bool", "float", "int", "isinstance", "len", "list", "map", "max", "print", "range", "tuple", "zip")


@dataclass(frozen=True)
class Launchers:
    """The kernels of workloads in a file, and the functions that launch them.

    `names`: of these functions; `reserved`: all names that are taken in the file.
    """

    kernels: Mapping[str, FileKernels]
    ways: Mapping[LauncherKey, Workload]
    names: Mapping[LauncherKey, str]

    @staticmethod
    def of(
        launched: Iterable[Workload], found: Mapping[str, Tuned], names: Identifiers, dropped: str = ""
    ) -> Launchers:
        """Launchers of all launches; `found`: by the key of a workload; `dropped`: from the starts of their names."""
        ways: dict[LauncherKey, Workload] = {}
        for workload in launched:
            ways.setdefault(call_of(workload), workload)
        kernels = {w.key: file_kernels(found[w.key], names) for w in ways.values()}
        return Launchers(kernels, ways, {way: names.of(way, w.name.removeprefix(dropped)) for way, w in ways.items()})

    @property
    def reserved(self) -> tuple[str, ...]:
        return (*self._called, *self.names.values())

    @property
    def imports(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(line for each in self.kernels.values() for line in each.imports))

    @property
    def functions(self) -> tuple[str, ...]:
        """The kernels, and then the functions that launch them."""
        kernels = dict.fromkeys(text for each in self.kernels.values() for text in each.functions)
        each = ((self.names[way], w, self.kernels[w.key]) for way, w in self.ways.items())
        return (*kernels, CHECK, *(launcher(*one, self._called) for one in each))

    @property
    def _called(self) -> tuple[str, ...]:
        return (*RESERVED, *(name for each in self.kernels.values() for name in each.names))


def file_names() -> Identifiers:
    """Identifiers of a file, none of its own given yet."""
    names = python_identifiers()
    for name in (*RESERVED, *_CALLED):
        names.of(("reserved", name), name)
    return names


def count_text(kernels: Iterable[Tuned]) -> str:
    """`one Triton kernel`, `3 Triton kernels and one CUDA kernel`."""
    counts: Counter[str] = Counter()
    for tuned in kernels:
        counts[_LANGUAGES[tuned.backend]] += len(tuned.schedule.program.kernels)
    return " and ".join(f"one {name} kernel" if n == 1 else f"{n} {name} kernels" for name, n in counts.items())


def head_text(title: str, kernels: Sequence[Tuned], remarks: Iterable[str] = ()) -> str:
    lines = [
        f"{title}, by autosched.",
        "",
        f"Needs {_needs(kernels)}. Before its first call it compares its results with PyTorch's in float64.",
        f"Run as a script, it does that too, and times itself; {_where(kernels)}.",
        *remarks,
    ]
    for tuned in kernels:
        lines += ["", *str(tuned.workload).split("\n"), "", tuned.origin]
        lines += ["", tuned.schedule.one_line, *to_text(tuned.schedule.program).split("\n")]
    return comment(lines, "#")


def _needs(kernels: Sequence[Tuned]) -> str:
    needed = ["PyTorch", *dict.fromkeys(map(_needed_by, kernels))]
    return ", ".join(needed[:-1]) + f" and {needed[-1]}"


def _needed_by(tuned: Tuned) -> str:
    if tuned.cubins:
        return "cuda-bindings"
    of_volta = tuned.backend == "cuda" and tuned.target.capability < _TURING
    return _NEEDED_BY_VOLTA if of_volta else _NEEDED[tuned.backend]


def _where(kernels: Sequence[Tuned]) -> str:
    """Remark on running the file without a GPU."""
    if any(t.cubins or t.backend == "cuda" for t in kernels):
        return "CUDA has no interpreter, so that needs the GPU"
    gluon = any(is_gluon(kernel) for tuned in kernels for kernel in tuned.schedule.program.kernels)
    alone = "without a GPU, that needs TRITON_INTERPRET=1"
    return "Gluon has no interpreter, so that needs the GPU" if gluon else alone


def tuned_text(kernels: Sequence[Tuned], seconds: float) -> str:
    where = ", ".join(sorted({f"{policy_text(t.policy)} on {t.target.device}" for t in kernels}))
    taken = f"{duration_text(seconds).replace('µ', 'u')} with {where}"
    return f"predicted, never measured: {taken}" if any(t.predicted for t in kernels) else f"tuned to {taken}"


def file_text(head: str, imports: Sequence[str], parts: Sequence[str]) -> str:
    """Everything in order, with the functions and imports that it needs."""
    body = "\n\n\n".join(parts)
    used = [text for name, text in CALLED.items() if re.search(rf"\b{name}\(", body)]
    before = body.index(CHECK)
    body = body[:before] + "\n\n\n".join([*used, body[before:]])
    standard = [line for pattern, line in _IMPORTS if re.search(rf"\b{pattern}", body)]
    descriptors = [line for pattern, line in _DESCRIPTORS if re.search(pattern, body)]
    modules = [line for line in imports if line.startswith(("import ", "from "))]
    settings = [line for line in imports if line not in modules]
    blocks = ["\n".join(standard), "\n".join(["import torch", *modules, *descriptors]), "\n".join(settings)]
    return f"{head}\n\n" + "\n\n".join(b for b in blocks if b) + f"\n\n\n{body}\n"
