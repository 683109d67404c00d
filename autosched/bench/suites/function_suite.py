"""The reader of suites of PyTorch functions: Python files that define `SUITE`.

SUITE = {"swiglu": (lambda a, b: F.silu(a) * b, [((4096, 11008), torch.bfloat16), ((4096, 11008), torch.bfloat16)]), …}

Every function has the shapes and element types of its arguments. A type is one of PyTorch, or a text: "f32", "f16",
"bf16" or a name of PyTorch, after "positive" for numbers from 0.5 to 1.5, or "int64 below 32000" for indices.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from autosched.bench.suites.suite import Suite
from autosched.tracing import TracedFunction, trace
from search_spaces import InputError
from tuning_logs.text import first_line

_SHORT = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
_FLOAT = re.compile(r"(?P<positive>positive )?(?P<dtype>[a-z0-9_]+)")
_INTEGER = re.compile(r"(?P<dtype>int32|int64) below (?P<below>[1-9][0-9]*)")
_EXPECTED = 'a floating-point torch.dtype, torch.bool, or a text such as "bf16", "positive f32" or "int64 below 32000"'


@dataclass(frozen=True)
class RandomArgument:
    """Distribution of one argument of a function: normal numbers, positive ones, or integers below `below`."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    positive: bool = False
    below: int | None = None

    @property
    def sizes(self) -> str:
        """`4096×32000`"""
        return "×".join(map(str, self.shape)) or "scalar"

    def drawn(self, generator: torch.Generator) -> Tensor:
        if self.dtype == torch.bool or self.below is not None:
            below = 2 if self.below is None else self.below
            drawn = torch.randint(0, below, self.shape, generator=generator, device=generator.device)
            return drawn.to(self.dtype)
        draw = torch.rand if self.positive else torch.randn
        drawn = draw(self.shape, generator=generator, device=generator.device)
        return (drawn.add_(0.5) if self.positive else drawn).to(self.dtype)


@dataclass(frozen=True)
class FunctionCase:
    """One function of a suite, traced on demand; operations without a kernel are left to PyTorch.

    `device`: where it runs; element types of some results depend on it.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[RandomArgument, ...]
    device: torch.device

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        return (("shapes", _shapes(self.arguments)),)

    @cached_property
    def op(self) -> TracedFunction:
        # Their elements are never touched, so that they take no memory.
        examples = [torch.empty(a.shape, dtype=a.dtype, device=self.device) for a in self.arguments]
        return trace(self.function, *examples, allow_fallback=True)

    def inputs(self, seed: int, device: torch.device) -> list[Tensor]:
        generator = torch.Generator(device=device).manual_seed(seed)
        return [argument.drawn(generator) for argument in self.arguments]


def read_function_suite(path: Path, device: str = "cpu") -> Suite:
    """The functions of a suite file, which is executed, on a device.

    Raises:
        InputError: the file cannot be read or fails, is no suite, or an entry is not allowed; the message names it.
    """
    found = getattr(executed(path), "SUITE", None)
    if not isinstance(found, Mapping) or not found:
        raise InputError(f"{path}: expected SUITE = {{name: (function, [(shape, dtype), …]), …}}")
    cases = tuple(_case(path, name, entry, torch.device(device)) for name, entry in found.items())
    return Suite(path.stem, cases, "fused")


def executed(path: Path) -> ModuleType:
    """The module of a Python file, which is executed.

    Raises:
        InputError: the file cannot be read, or fails.
    """
    if not path.is_file():
        raise InputError(f"cannot read the suite {path}: No such file")
    name = f"autosched_suite_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is no Python file; expected one whose name ends in .py")
    module = importlib.util.module_from_spec(spec)
    # dataclasses and torch.compile look up the module of a definition there.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        # Whatever the user's code raises.
        raise InputError(f"{path} fails: {type(error).__name__}: {first_line(error)}") from error
    return module


def _case(path: Path, name: object, entry: object, device: torch.device) -> FunctionCase:
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"{path}: got the name {name!r}; expected a text")
    match entry:
        case (function, [*arguments]) if callable(function):
            try:
                return FunctionCase(name, function, tuple(map(_argument, arguments)), device)
            except InputError as error:
                raise InputError(f"{path}, {name}: {error}") from None
    raise InputError(f"{path}, {name}: got {entry!r}; expected (function, [(shape, dtype), …])")


def _argument(given: object) -> RandomArgument:
    match given:
        case ([*shape], dtype):
            sizes = tuple(size for size in shape if type(size) is int and size >= 0)
            if len(sizes) == len(shape):
                return _of_type(sizes, dtype)
    raise InputError(f"got {given!r}; expected (shape, dtype), such as ((4096, 768), torch.bfloat16)")


def _of_type(shape: tuple[int, ...], dtype: object) -> RandomArgument:
    if isinstance(dtype, torch.dtype) and (dtype.is_floating_point or dtype == torch.bool):
        return RandomArgument(shape, dtype)
    if isinstance(dtype, str):
        if found := _INTEGER.fullmatch(dtype):
            return RandomArgument(shape, getattr(torch, found["dtype"]), below=int(found["below"]))
        if found := _FLOAT.fullmatch(dtype):
            named = getattr(torch, _SHORT.get(found["dtype"], found["dtype"]), None)
            if isinstance(named, torch.dtype) and named.is_floating_point:
                return RandomArgument(shape, named, positive=found["positive"] is not None)
    raise InputError(f"got the type {dtype!r}; expected {_EXPECTED}")


def _shapes(arguments: tuple[RandomArgument, ...]) -> str:
    """Every argument; consecutive ones of one type share it, after the last: `8×16, 16 bfloat16, 8 int64`."""
    following = (*arguments[1:], None)
    return ", ".join(
        a.sizes if after is not None and after.dtype == a.dtype else f"{a.sizes} {str(a.dtype).removeprefix('torch.')}"
        for a, after in zip(arguments, following, strict=True)
    )
