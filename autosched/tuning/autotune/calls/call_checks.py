"""Checks of a call that hold for every configuration: without them every trial would fail alike, and fill the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import torch

from autosched.tuning.autotune.calls.call import Call
from autosched.tuning.autotune.calls.jit_kernel import Parameters
from search_spaces import InputError


def check_given(call: Call, parameters: Parameters, knobs: Collection[str]) -> None:
    """Raise InputError unless every parameter of the kernel is given once, by the call or by the configuration."""
    names = parameters.names
    given = Counter([*names[: len(call.arguments)], *call.keywords])
    if both := [name for name in given if name in knobs]:
        raise InputError(
            f"{_listed(both)}: given by the call, and a knob; a knob is chosen, so leave it out of the call"
        )
    if twice := [name for name, times in given.items() if times > 1]:
        raise InputError(f"{_listed(twice)}: given twice by the call")
    known = {*given, *knobs, *parameters.defaults, *parameters.computed}
    if lacking := [name for name in names if name not in known]:
        raise InputError(f"the call lacks {_listed(lacking)}; expected of the kernel's arguments: {_listed(names)}")


def check_known(call: Call, parameters: Parameters, knobs: Iterable[str], options: Collection[str]) -> None:
    """Raise InputError for a keyword or a knob that is no parameter, and no option of a launch either."""
    if unknown := [name for name in [*call.keywords, *knobs] if name not in {*parameters.names, *options}]:
        raise InputError(
            f"the kernel has no parameter {_listed(unknown)}; expected {_listed(parameters.names)}, or what a launch "
            f"takes: {_listed(sorted(options))}"
        )


def check_tensors_named(call: Call, named: Mapping[str, Iterable[str] | None]) -> None:
    """Raise InputError if one of the lists names an argument that is present and no tensor in this call."""
    for what, names in named.items():
        for name in names or ():
            if call.named.get(name) is not None and not call.tensors_of([name]):
                kind = type(call.named[name]).__name__
                raise InputError(f"{what} names {name}, which is of type {kind} in this call; expected a tensor")


def check_key(call: Call, key: Iterable[str]) -> None:
    """Raise InputError if a tensor is in the key: with every other tensor the kernel would be tuned anew."""
    if found := [name for name in key if call.tensors_of([name])]:
        raise InputError(
            f"key names {_listed(found)}, a tensor; expected arguments that recur from call to call, such as a size: "
            "element types and alignment are in the key anyway"
        )


def check_devices(tensors: Mapping[str, torch.Tensor], current: torch.device | None) -> None:
    """Raise InputError unless there is a GPU, whose kernels can reach these: its own memory, or pinned memory."""
    if current is None:
        raise InputError("no GPU here, as far as PyTorch sees; set TRITON_INTERPRET=1 before Triton is imported")
    out_of_reach = {name: t.device for name, t in tensors.items() if t.is_cpu and not t.is_pinned()}
    if out_of_reach:
        raise InputError(f"{_on(out_of_reach)}; expected tensors on {current}")
    away = {name: t.device for name, t in tensors.items() if t.is_cuda and t.device != current}
    if away and len(away) == len(tensors):
        raise InputError(f"{_on(away)}, and the kernel runs on {current}; call it under torch.cuda.device(…) of theirs")


def _on(devices: Mapping[str, torch.device]) -> str:
    return ", ".join(f"{name} is on {device}" for name, device in devices.items())


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
