"""`autosched.export`: a tuned kernel as a Python file that needs only PyTorch, and Triton or cuda-bindings.

# what it computes, where it was tuned, its schedule
imports
kernels, in Triton or in CUDA C++
def launch_matmul(a, b, …): …       allocates, launches
def matmul(a, b, bias): …           checks its arguments, and calls that
def _reference(a, b, bias): …       the same by PyTorch
def _checked(device): …             compares them in float64, between guard bands, before the first call
if __name__ == "__main__": …        the same, and times the kernel
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import torch

from autosched.backends.printing.quoting import comment
from autosched.backends.printing.scope import Identifiers
from autosched.backends.triton.language.scope import python_identifiers
from autosched.backends.triton.source import is_gluon
from autosched.checking.random_inputs import indexed_sizes
from autosched.kernels.kernel import Kernel
from autosched.machine import devices
from autosched.machine.policies import Policy, policy_text
from autosched.standalone.launchers import CHECK, PREPARED, LauncherKey, call_of, entry, launcher
from autosched.standalone.references import HELPERS, reference
from autosched.standalone.self_test import RANDOM, error_text, first_call_text, inputs_text, main_text
from autosched.standalone.traced_functions import ALIGNED, INTO, LAID_OUT, TYPE, VIEW, TracedText, constants_path
from autosched.standalone.triton_kernels import DESCRIPTOR, GLUON_DESCRIPTOR
from autosched.standalone.tuned import Tuned, file_kernels, look_up
from autosched.tracing import TracedFunction, TracedKernel
from autosched.tracing.callables.traced import why_not_one
from search_spaces import AutoschedError, EmptySearchSpaceError, InputError, Target, Workload
from search_spaces.programs.text import to_text
from tuning_logs.text import duration_text

# Imports of a file, each if its text matches the pattern.
_IMPORTS = (
    (r"ctypes\.", "import ctypes"),
    (r"functools\.", "import functools"),
    (r"math\.", "import math"),
    (r"pathlib\.", "import pathlib"),
    (r"sys\.", "import sys"),
    (r"weakref\.", "import weakref"),
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
_RESERVED = ("torch", "math", "sys", "functools", "pathlib", "weakref", "triton", "tl", DESCRIPTOR, GLUON_DESCRIPTOR)

# Python's functions that every file calls: none of its own may have these names.
_CALLED = ("any", "bool", "float", "int", "isinstance", "len", "list", "map", "max", "print", "range", "tuple", "zip")


def export(
    op: Workload | TracedFunction | Kernel | TracedKernel,
    path: str | os.PathLike[str],
    target: str | Target | None = None,
    *,
    log: str | os.PathLike[str] | None = None,
    policy: Policy = "cold",
    predicted: bool = False,
) -> Path:
    """Write a kernel to a Python file that needs PyTorch and nothing of autosched; its path.

    A kernel by Triton also needs Triton 3.6 to 3.9, and one in CUDA C++ cuda-bindings with NVRTC.

    The file has a function named after the workload or the traced function, which takes the same tensors, with these
    shapes, element types and strides, and launches the kernels; a comment above it has the workload and its schedule.
    Before its first call on a device, in every process, the function compares the kernels' results for random inputs,
    between guard bands, with PyTorch's results in float64, and raises RuntimeError if they are wrong. That takes the
    time and the memory of PyTorch's results, in float64 and in the types as they are. Run as a script the file does the
    same and times itself. On a CPU kernels by Triton run with TRITON_INTERPRET=1, and no others.

    A workload or traced function is looked up as by `replay`, with the same arguments; a GPU that is named, "h200",
    need not be here. With `predicted` the first prediction of `predict` is written instead of a measured kernel, and
    the file says that its figures are predicted. Constants of a traced function that have over 1024 elements are saved
    next to the file, under its name with the suffix `.pt`.

    Raises:
        InputError: the kernel is for a CPU, no log has a usable record, or a traced function calls something that
            cannot be written out.
        TargetUnavailableError, LogError: as `replay`.
    """
    file = Path(path)
    saved: dict[str, torch.Tensor] = {}

    def found(workload: Workload) -> Tuned:
        return look_up(workload, target, log, policy, predicted)

    if predicted and isinstance(op, Kernel | TracedKernel):
        raise InputError("predicted=True is for an operator or a traced function; this is a kernel, made and checked")
    if why := why_not_one(op, "autosched.export"):
        raise InputError(why)
    match op:
        case Workload():
            text = workload_text(found(op))
        case Kernel():
            text = workload_text(Tuned.of(op.record, op.schedule, op.workload))
        case TracedFunction():
            text, saved = traced_text(*_fastest_cut(op.for_target(devices.described(target)), found))
        case TracedKernel():
            text, saved = traced_text(
                op.traced, {k.workload.key: Tuned.of(k.record, k.schedule, k.workload) for k in op.kernels}
            )
        case _:
            expected = "an operator, a function as autosched.trace gives it, or a kernel"
            raise InputError(f"got {type(op).__name__}; expected {expected}")
    if not file.parent.is_dir():
        raise InputError(f"{file}: there is no folder {file.parent}; expected one that exists")
    if saved:
        torch.save(saved, constants_path(file))
    file.write_text(text, encoding="utf-8")
    return file


def _fastest_cut(traced: TracedFunction, found: Callable[[Workload], Tuned]) -> tuple[TracedFunction, dict[str, Tuned]]:
    """The fastest of the function's cuts whose kernels are all found, and its kernels.

    Raises:
        InputError: no cut has all of its kernels.
    """
    complete: list[tuple[float, TracedFunction, dict[str, Tuned]]] = []
    missing: list[AutoschedError] = []
    for cut in traced.cuts:
        try:
            kernels = {w.key: found(w) for w in cut.workloads}
        except (InputError, EmptySearchSpaceError) as error:
            missing.append(error)
        else:
            complete.append((cut.latency_s({k: t.seconds for k, t in kernels.items()}), cut, kernels))
    if not complete:
        raise missing[0]
    _, cut, kernels = min(complete, key=lambda each: each[0])
    return cut, kernels


def workload_text(tuned: Tuned) -> str:
    """The file of one workload."""
    workload, names = tuned.workload, _names()
    function = names.of(workload, workload.name)
    kernels = file_kernels(tuned, names)
    launched = names.of((workload, "launched"), f"launch_{function}")
    reserved = (*_RESERVED, *kernels.names, launched)
    parts = [
        *kernels.functions,
        CHECK,
        launcher(launched, workload, kernels, reserved),
        entry(function, launched, workload, reserved),
        reference("_reference", workload),
        RANDOM,
        inputs_text(workload.inputs, indexed_sizes(workload)),
        error_text([workload], "in float32"),
        first_call_text(function, launched, _compared(len(workload.outputs))),
        main_text(function, workload.label, _tuned_text([tuned], tuned.seconds)),
    ]
    return _file(_head(f"{workload.label}: {_count([tuned])}", [tuned]), kernels.imports, parts)


def traced_text(traced: TracedFunction, found: Mapping[str, Tuned]) -> tuple[str, dict[str, torch.Tensor]]:
    """The file of a traced function with these kernels, by key; and the tensors to save next to it."""
    kernels = [found[w.key] for w in traced.workloads]
    names = _names()
    function = names.of(traced, traced.name)
    by_key = {w.key: file_kernels(found[w.key], names) for w in traced.workloads}
    ways: dict[LauncherKey, Workload] = {}
    for w in traced.launched:
        ways.setdefault(call_of(w), w)
    launchers = {way: names.of(way, w.name) for way, w in ways.items()}
    launched = names.of((traced, "launched"), f"launch_{function}")
    called = [name for each in by_key.values() for name in each.names]
    whole = TracedText(traced, function, launchers, (*_RESERVED, *called, *launchers.values(), launched))
    imports = dict.fromkeys(line for each in by_key.values() for line in each.imports)
    functions = dict.fromkeys(text for each in by_key.values() for text in each.functions)
    parts = [
        *functions,
        CHECK,
        *(launcher(launchers[way], w, by_key[w.key], (*_RESERVED, *called)) for way, w in ways.items()),
        *([whole.constants_text()] if whole.constants else []),
        whole.launched(launched),
        whole.entry(launched),
        whole.reference(),
        RANDOM,
        inputs_text(whole.arguments, whole.sizes(), whole.safe_integers),
        error_text(traced.workloads, "in the function's own types"),
        first_call_text(function, launched, whole.compared()),
        main_text(
            function, traced.name, _tuned_text(kernels, traced.latency_s({k: t.seconds for k, t in found.items()}))
        ),
    ]
    title = f"{traced.label}: {_count(kernels)}"
    left = [f"left to PyTorch: {text}" for text in traced.left_to_pytorch]
    return _file(_head(title, kernels, left), list(imports), parts), whole.saved


def _compared(outputs: int) -> list[str]:
    """Lines of the self-test of a workload with so many outputs that make each operand a sequence of all of them."""
    exact, usual = (f"_reference(*[x.{to}() for x in inputs])" for to in ("double", "float"))
    if outputs > 1:
        return [f"exact = {exact}", f"usual = {usual}"]
    return ["got = [got]", f"exact = [{exact}]", f"usual = [{usual}]"]


def _names() -> Identifiers:
    names = python_identifiers()
    for name in (*_RESERVED, *_CALLED):
        names.of(("reserved", name), name)
    return names


def _count(kernels: Iterable[Tuned]) -> str:
    """`one Triton kernel`, `3 Triton kernels and one CUDA kernel`."""
    counts: Counter[str] = Counter()
    for tuned in kernels:
        counts[_LANGUAGES[tuned.backend]] += len(tuned.schedule.program.kernels)
    return " and ".join(f"one {name} kernel" if n == 1 else f"{n} {name} kernels" for name, n in counts.items())


def _head(title: str, kernels: Sequence[Tuned], remarks: Iterable[str] = ()) -> str:
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
    of_volta = tuned.backend == "cuda" and tuned.target.capability < _TURING
    return _NEEDED_BY_VOLTA if of_volta else _NEEDED[tuned.backend]


def _where(kernels: Sequence[Tuned]) -> str:
    """Remark on running the file without a GPU."""
    if any(t.backend == "cuda" for t in kernels):
        return "CUDA has no interpreter, so that needs the GPU"
    gluon = any(is_gluon(kernel) for tuned in kernels for kernel in tuned.schedule.program.kernels)
    alone = "without a GPU, that needs TRITON_INTERPRET=1"
    return "Gluon has no interpreter, so that needs the GPU" if gluon else alone


def _tuned_text(kernels: Sequence[Tuned], seconds: float) -> str:
    where = ", ".join(sorted({f"{policy_text(t.policy)} on {t.target.device}" for t in kernels}))
    taken = f"{duration_text(seconds).replace('µ', 'u')} with {where}"
    return f"predicted, never measured: {taken}" if any(t.predicted for t in kernels) else f"tuned to {taken}"


def _file(head: str, imports: Sequence[str], parts: Sequence[str]) -> str:
    """Everything in order, with the functions and imports that it needs."""
    body = "\n\n\n".join(parts)
    helpers = {
        **HELPERS,
        "_prepared": PREPARED,
        "_view": VIEW,
        "_into": INTO,
        "_aligned": ALIGNED,
        "_laid_out": LAID_OUT,
        "_type": TYPE,
    }
    used = [text for name, text in helpers.items() if re.search(rf"\b{name}\(", body)]
    before = body.index(CHECK)
    body = body[:before] + "\n\n\n".join([*used, body[before:]])
    standard = [line for pattern, line in _IMPORTS if re.search(rf"\b{pattern}", body)]
    descriptors = [line for pattern, line in _DESCRIPTORS if re.search(pattern, body)]
    modules = [line for line in imports if line.startswith(("import ", "from "))]
    settings = [line for line in imports if line not in modules]
    blocks = ["\n".join(standard), "\n".join(["import torch", *modules, *descriptors]), "\n".join(settings)]
    return f"{head}\n\n" + "\n\n".join(b for b in blocks if b) + f"\n\n\n{body}\n"
