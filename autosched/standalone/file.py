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
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch

from autosched.checking.random_inputs import indexed_sizes, segmented
from autosched.kernels.kernel import Kernel
from autosched.machine import devices
from autosched.machine.policies import Policy
from autosched.standalone.assembling import (
    RESERVED,
    Launchers,
    count_text,
    file_names,
    file_text,
    head_text,
    tuned_text,
)
from autosched.standalone.launchers import CHECK, entry, launcher
from autosched.standalone.models import FileModel, ModelText
from autosched.standalone.prepared_values import check_texts
from autosched.standalone.references import reference
from autosched.standalone.self_test import (
    RANDOM,
    Cut,
    error_text,
    first_call_text,
    inputs_text,
    main_text,
    worst_of_all,
    worst_text,
)
from autosched.standalone.traced_functions import TracedText, constants_path
from autosched.standalone.tuned import Tuned, file_kernels, look_up
from autosched.tracing import TracedFunction, TracedKernel
from autosched.tracing.callables.traced import why_not_one
from search_spaces import AutoschedError, EmptySearchSpaceError, InputError, Target, Workload


def export(
    op: Workload | TracedFunction | Kernel | TracedKernel,
    path: str | os.PathLike[str],
    target: str | Target | None = None,
    *,
    log: str | os.PathLike[str] | None = None,
    policy: Policy = "cold",
    predicted: bool = False,
    cubins: bool = False,
) -> Path:
    """Write a kernel to a Python file that needs PyTorch and nothing of autosched; its path.

    A kernel by Triton also needs Triton 3.6 to 3.9, and one in CUDA C++ cuda-bindings with NVRTC. With `cubins` the
    file has compiled kernels, which cuda-bindings alone launches, on GPUs of the target's compute capability only.

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
        InputError: the kernel is for a CPU, no log has a usable record, a traced function calls something that cannot
            be written out, or kernels are to be compiled and no compiler is here.
        TargetUnavailableError, LogError: as `replay`.
    """
    file = Path(path)
    saved: dict[str, torch.Tensor] = {}

    def found(workload: Workload) -> Tuned:
        return replace(look_up(workload, target, log, policy, predicted), cubins=cubins)

    def of(kernel: Kernel) -> Tuned:
        return replace(Tuned.of(kernel.record, kernel.schedule, kernel.workload), cubins=cubins)

    if predicted and isinstance(op, Kernel | TracedKernel):
        raise InputError("predicted=True is for an operator or a traced function; this is a kernel, made and checked")
    if why := why_not_one(op, "autosched.export"):
        raise InputError(why)
    match op:
        case Workload():
            text = workload_text(found(op))
        case Kernel():
            text = workload_text(of(op))
        case TracedFunction():
            text, saved = traced_text(*fastest_cut(op.for_target(devices.described(target)), found))
        case TracedKernel():
            text, saved = traced_text(op.traced, {k.workload.key: of(k) for k in op.kernels})
        case _:
            expected = "an operator, a function as autosched.trace gives it, or a kernel"
            raise InputError(f"got {type(op).__name__}; expected {expected}")
    return written(file, text, saved)


def written(file: Path, text: str, saved: Mapping[str, torch.Tensor]) -> Path:
    """The file, with its text, and the tensors to save next to it.

    Raises:
        InputError: its folder does not exist.
    """
    if not file.parent.is_dir():
        raise InputError(f"{file}: there is no folder {file.parent}; expected one that exists")
    if saved:
        torch.save(dict(saved), constants_path(file))
    file.write_text(text, encoding="utf-8")
    return file


def fastest_cut(traced: TracedFunction, found: Callable[[Workload], Tuned]) -> tuple[TracedFunction, dict[str, Tuned]]:
    """The fastest of the function's cuts whose kernels are all found, and its kernels.

    Raises:
        InputError: no cut has all of its kernels.
    """
    complete: list[tuple[float, TracedFunction, dict[str, Tuned]]] = []
    missing: list[AutoschedError] = []
    for cut in traced.cuts:
        try:
            check_texts(cut)
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
    workload, names = tuned.workload, file_names()
    function = names.of(workload, workload.name)
    kernels = file_kernels(tuned, names)
    launched = names.of((workload, "launched"), f"launch_{function}")
    reserved = (*RESERVED, *kernels.names, launched)
    parts = [
        *kernels.functions,
        CHECK,
        launcher(launched, workload, kernels, reserved),
        entry(function, launched, workload, reserved),
        reference("_reference", workload),
        RANDOM,
        inputs_text(
            workload.inputs,
            indexed_sizes(workload),
            bounds={name: Cut(size) for name, size in segmented(workload).items()},
        ),
        error_text([workload], "in float32"),
        first_call_text(function, worst_text(launched, _compared(len(workload.outputs)))),
        main_text(function, workload.label, tuned_text([tuned], tuned.seconds)),
    ]
    return file_text(head_text(f"{workload.label}: {count_text([tuned])}", [tuned]), kernels.imports, parts)


def traced_text(traced: TracedFunction, found: Mapping[str, Tuned]) -> tuple[str, dict[str, torch.Tensor]]:
    """The file of a traced function with these kernels, by key; and the tensors to save next to it."""
    kernels = [found[w.key] for w in traced.workloads]
    names = file_names()
    function = names.of(traced, traced.name)
    launchers = Launchers.of(traced.launched, found, names)
    launched = names.of((traced, "launched"), f"launch_{function}")
    whole = TracedText(traced, function, launchers.names, (*launchers.reserved, launched))
    parts = [
        *launchers.functions,
        *([whole.constants_text()] if whole.constants else []),
        whole.launched(launched),
        whole.entry(launched),
        whole.reference(),
        RANDOM,
        inputs_text(whole.arguments, whole.sizes(), whole.safe_integers, whole.places(), bounds=whole.bounds()),
        error_text(traced.workloads, "in the function's own types"),
        first_call_text(function, worst_text(launched, whole.compared())),
        main_text(
            function, traced.name, tuned_text(kernels, traced.latency_s({k: t.seconds for k, t in found.items()}))
        ),
    ]
    title = f"{traced.label}: {count_text(kernels)}"
    left = [f"left to PyTorch: {text}" for text in traced.left_to_pytorch]
    return file_text(head_text(title, kernels, left), launchers.imports, parts), whole.saved


def model_text(model: FileModel, found: Mapping[str, Tuned]) -> tuple[str, dict[str, torch.Tensor]]:
    """The file of a model with these kernels, by key; and the tensors to save next to it."""
    cut = {part.key: part.traced for part in model.distinct if part.traced is not None}
    names = file_names()
    function = names.of(model, model.name)
    # Parts have no names of their own, but all the same one.
    dropped = f"{next(iter(cut.values())).name}_"
    launchers = Launchers.of([w for traced in cut.values() for w in traced.launched], found, names, dropped)
    launched = names.of((model, "launched"), f"launch_{function}")
    called = {p.key: names.of(p, f"{launched}_{n}") for n, p in enumerate(model.distinct, 1)}
    texts = {
        key: TracedText(traced, called[key], launchers.names, launchers.reserved, called[key].removeprefix(launched))
        for key, traced in cut.items()
    }
    whole = ModelText(model, function, launched, called, texts, launchers.reserved)
    workloads = list({w.key: w for traced in cut.values() for w in traced.workloads}.values())
    kernels = [found[w.key] for w in workloads]
    left = [part for part in model.distinct if part.traced is None]
    integers = (0, 2) if left or any(text.safe_integers for text in texts.values()) else None
    seconds = sum(found[w.key].seconds for p in model.parts if p.traced is not None for w in p.traced.launched)
    parts = [
        *launchers.functions,
        *(text.constants_text() for text in texts.values() if text.constants),
        *(text.launched(called[key]) for key, text in texts.items()),
        *map(whole.left_text, left),
        whole.launched_text(),
        whole.class_text(),
        *(text.reference() for text in texts.values()),
        RANDOM,
        *(
            inputs_text(text.arguments, text.sizes(), text.safe_integers, text.places(), text.suffix, text.bounds())
            for text in texts.values()
        ),
        inputs_text(whole.arguments, whole.sizes(), integers, whole.places(), bounds=whole.bounds()),
        error_text(workloads, "in the function's own types"),
        first_call_text(
            function,
            *(worst_text(called[key], text.compared(), text.suffix) for key, text in texts.items()),
            worst_of_all([text.suffix for text in texts.values()]),
        ),
        main_text(launched, model.name, f"kernels {tuned_text(kernels, seconds)}"),
    ]
    remarks = [f"left to PyTorch: {text}" for traced in cut.values() for text in traced.left_to_pytorch]
    remarks += [f"left to PyTorch: {part.operators} operators: {part.why}" for part in left]
    head = head_text(f"{model.label}: {count_text(kernels)}", kernels, remarks)
    saved = {name: t for text in texts.values() for name, t in text.saved.items()}
    return file_text(head, launchers.imports, parts), {**whole.saved, **saved}


def _compared(outputs: int) -> list[str]:
    """Lines of the self-test of a workload with so many outputs that make each operand a sequence of all of them."""
    exact, usual = (f"_reference(*[x.{to}() for x in inputs])" for to in ("double", "float"))
    if outputs > 1:
        return [f"exact = {exact}", f"usual = {usual}"]
    return ["got = [got]", f"exact = [{exact}]", f"usual = [{usual}]"]
