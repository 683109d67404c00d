"""The user's source line of an operation or an error."""

from __future__ import annotations

import functools
import itertools
import linecache
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.fx.traceback import set_stack_trace
from torch.overrides import TorchFunctionMode

_TORCH = Path(torch.__file__).parent
_PACKAGE = Path(__file__).parents[2]


def user_line(node: fx.Node) -> str:
    """The user's source line of an operation: `file.py:12: y = x.cumsum(0)`; "" where that is unknown."""
    return _line_of(node.meta.get("stack_trace") or "")


# Each line of a loop, or of a module with many layers, gives many operations.
@functools.lru_cache(4096)
def _line_of(stack_trace: str) -> str:
    lines = stack_trace.strip().splitlines()
    places = []
    for place, code in itertools.pairwise(lines):
        if place.strip().startswith("File "):
            file, line, *_ = place.strip().removeprefix("File ").split(", ")
            places.append((Path(file.strip('"')), line.removeprefix("line "), code.strip()))
    return _last_of_user(places)


class LinesKept(TorchFunctionMode):
    """A context in which operations, and their gradients, keep the user's source line.

    Effective only while PyTorch keeps metadata of nodes, as it does when it records a gradient.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        set_stack_trace(_users_frame())
        return func(*args, **(kwargs or {}))


def _users_frame() -> list[str]:
    """The innermost frame that is neither of PyTorch nor of this package, as Python prints it."""
    frame = sys._getframe(2)
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    file, line = frame.f_code.co_filename, frame.f_lineno
    code = linecache.getline(file, line, frame.f_globals).strip()
    return [f'  File "{file}", line {line}, in {frame.f_code.co_name}\n    {code}\n']


def _is_ours(file: str) -> bool:
    return file.startswith((f"{_TORCH}/", f"{_PACKAGE}/"))


def why_not_captured(error: Exception) -> str:
    """Source line and cause of a capture error, as far as known: ` (file.py:12: code): reason`."""
    frames = traceback.extract_tb(error.__traceback__)
    line = _last_of_user([(Path(f.filename), str(f.lineno), f.line or "") for f in frames])
    at = f" ({line})" if line else ""
    # Imported here: it takes 0.3 s, and workers start without it; torch.export has imported it.
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    # With symbols for values of tensors, and without them.
    if isinstance(error, GuardOnDataDependentSymNode | DataDependentOutputException):
        return (
            f"{at}: Python takes a value out of a tensor there, as `if` or float() do; expected decisions by shapes, "
            "element types and constants only (torch.where(condition, a, b) chooses element by element; where i is a "
            "tensor without dimensions, x[i] = y is x[i[None]] = y)"
        )
    return f"{at}: {type(error).__name__}: {error}"


def _last_of_user(places: Iterable[tuple[Path, str, str]]) -> str:
    """The last of these frames (file, line, code; outermost first) that is neither of PyTorch nor of this package."""
    users = [p for p in places if p[2] and not _is_ours(str(p[0]))]
    # A frame within PyTorch's modules is on behalf of a line above.
    return f"{users[-1][0].name}:{users[-1][1]}: {users[-1][2]}" if users else ""
