"""A call of a kernel without its configuration: launching, compiling, and its key in a log."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from autosched.tuning.autotune.calls.jit_kernel import Grid, JitKernel
from autosched.tuning.autotune.configurations import Configuration
from tuning_logs import OwnKernel

# Triton compiles other code for pointers that are multiples of so many bytes.
_ALIGNMENT = 16
# Values of a key that JSON can represent; others, such as element types, are written by their name.
_SCALARS = (int, float, str, bool, type(None))
_NUMBERS = frozenset({int, float, bool})


@dataclass(frozen=True)
class Call:
    """A kernel with the arguments that the user gave."""

    kernel: JitKernel
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    grid: Grid

    @cached_property
    def positional(self) -> dict[str, Any]:
        """The positional arguments by name."""
        return dict(zip(self.kernel.arg_names, self.arguments, strict=False))

    @property
    def named(self) -> dict[str, Any]:
        """All arguments by name, positional or not, in the order of the parameters."""
        given = {**self.positional, **self.keywords}
        return {name: given[name] for name in self.kernel.arg_names if name in given} | given

    @cached_property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors among the arguments by name; in a tuple, or under a descriptor, `name.0` and `name.base`."""
        return dict(found for name, value in self.named.items() for found in _tensors(name, value))

    def tensors_of(self, names: Collection[str]) -> dict[str, torch.Tensor]:
        """The tensors that are, or are in, the arguments of these names."""
        return {name: tensor for name, tensor in self.tensors.items() if name.partition(".")[0] in names}

    def launch(self, configuration: Configuration) -> Any:
        """Run the kernel once, after the configuration's hook."""
        self.prepare(configuration)
        return self.kernel.run(*self.arguments, grid=self.grid, warmup=False, **self.keywords, **configuration.keywords)

    def compile(self, configuration: Configuration) -> Any:
        """Compile without running: Triton's object of the kernel, whose compilation may still be under way."""
        self.prepare(configuration)
        return self.kernel.run(*self.arguments, grid=self.grid, warmup=True, **self.keywords, **configuration.keywords)

    def prepare(self, configuration: Configuration) -> None:
        """Call the configuration's hook, if any."""
        if configuration.pre_hook is not None:
            configuration.pre_hook({**self.named, **configuration.keywords})


class Keys:
    """Key of calls that share a configuration: the values of the user's key, element types, alignment.

    Computed for every call, so it takes as little as it can: a few microseconds.
    """

    def __init__(self, names: Sequence[str], key: Sequence[str]) -> None:
        self._places = [(names.index(name), name) for name in key]

    def of(self, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> tuple[Any, ...]:
        given = len(arguments)
        found = [arguments[place] if place < given else keywords.get(name) for place, name in self._places]
        for value in (*arguments, *keywords.values()):
            kind = value.__class__
            if kind is torch.Tensor:
                found.append(value.dtype)
                found.append(value.data_ptr() % _ALIGNMENT == 0)
            elif kind not in _NUMBERS:
                found.append(None if value is None else type_of(value))
        return tuple(found)


def own_kernel(name: str, fingerprint: str, named: Mapping[str, Any], key: Sequence[str]) -> OwnKernel:
    """The key of a call for a log."""
    values = ((k, v if isinstance(v, _SCALARS) else str(v)) for k in key for v in [named.get(k)])
    types = ((k, kind) for k, v in named.items() if (kind := type_of(v)) is not None)
    return OwnKernel(name, fingerprint, tuple(values), tuple(types))


def type_of(value: Any) -> str | None:
    """The element type of a tensor or descriptor, with a mark if it is misaligned; None for anything else."""
    base = getattr(value, "base", value)
    if isinstance(base, torch.dtype):
        return str(base).removeprefix("torch.")
    kind = getattr(base, "dtype", None)
    if kind is None:
        return None
    aligned = not isinstance(base, torch.Tensor) or base.data_ptr() % _ALIGNMENT == 0
    return str(kind).removeprefix("torch.") + ("" if aligned else " unaligned")


def _tensors(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, tuple | list):
        for number, member in enumerate(value):
            yield from _tensors(f"{name}.{number}", member)
    elif isinstance(base := getattr(value, "base", None), torch.Tensor):
        yield f"{name}.base", base
