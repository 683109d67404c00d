"""What writes random programs: their text and inputs so far, and what PyTorch makes of them."""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from search_spaces.workloads.strides import span

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
HELD = (*FLOATS, torch.int64, torch.int32, torch.bool)
# Sizes at and beside the widths of vectors and tiles, and those where everything degenerates.
SIZES = (1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 33, 49, 64, 65)
MOST_ELEMENTS = 20_000
STEPS = (2, 9)
# How often inputs have 0, 1, 2 … dimensions.
RANKS = (0.09, 0.17, 0.35, 0.24, 0.15)
# Nothing so large that sums and products overflow in one order and not in another.
_SPECIAL = (float("inf"), -float("inf"), float("nan"), 0.0, -0.0, 1e-40, 1e4, 1.0)


@dataclass(frozen=True)
class Program:
    """A function and its inputs. `text` is its source; `differentiated`: its gradient is wanted as well; `closed_over`:
    tensors that its text names besides its arguments.
    """

    seed: int
    text: str
    inputs: tuple[Tensor, ...]
    differentiated: bool = False
    closed_over: Mapping[str, Tensor] = field(default_factory=dict)

    def on(self, device: torch.device) -> Program:
        """The program with tensors of its own on that device."""
        closed_over = {name: copied(x, device) for name, x in self.closed_over.items()}
        return replace(self, inputs=tuple(copied(x, device) for x in self.inputs), closed_over=closed_over)

    @property
    def function(self) -> Callable[..., Any]:
        """The function, made of the text; its lines are known to tracebacks."""
        name = f"program_{self.seed}.py"
        linecache.cache[name] = (len(self.text), None, self.text.splitlines(keepends=True), name)
        space: dict[str, Any] = {"torch": torch, "F": F, **self.closed_over}
        exec(compile(self.text, name, "exec"), space)
        made = space["program"]
        assert callable(made)
        return made

    def __str__(self) -> str:
        arguments = self.text.partition("(")[2].partition(")")[0].split(", ")
        named = {**dict(zip(arguments, self.inputs, strict=True)), **self.closed_over}
        given = ", ".join(f"{n}: {x.dtype} {list(x.shape)} by {x.stride()}" for n, x in named.items())
        closed_over = f" closing over {', '.join(self.closed_over)}" if self.closed_over else ""
        return f"seed {self.seed}: {given}{' with gradients' if self.differentiated else ''}{closed_over}\n{self.text}"


@dataclass
class Writer:
    """A program while it is written: what its names hold, and its lines."""

    rng: np.random.Generator
    floats: torch.dtype
    known: dict[str, Tensor] = field(default_factory=dict)
    inputs: list[Tensor] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    # How often a dimension has the size 1 besides.
    ones: float = 0.0
    # Whether images have numbers that are not finite.
    special: bool = False
    # The type that PyTorch's autocast narrows to, if it does.
    autocast: torch.dtype | None = None

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def one_of(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def context(self) -> AbstractContextManager[object]:
        """In which its lines are run."""
        return nullcontext() if self.autocast is None else torch.autocast("cpu", self.autocast)

    def names(self, *dtypes: torch.dtype) -> list[str]:
        return [n for n, t in self.known.items() if t.dtype in dtypes]

    def shape(self, rank: int) -> tuple[int, ...]:
        while True:
            shape = tuple(1 if self.chance(self.ones) else int(self.one_of(SIZES)) for _ in range(rank))
            if np.prod(shape, initial=1) <= MOST_ELEMENTS:
                return shape

    def given(self, tensor: Tensor) -> str:
        """A new input that holds this."""
        name = f"x{len(self.inputs)}"
        self.inputs.append(tensor)
        self.known[name] = tensor
        return name

    def step(self, text: str) -> str | None:
        """A line that names the result of an expression; None where PyTorch refuses it, or it is too large."""
        name = f"v{len(self.lines)}"
        try:
            with warnings.catch_warnings(), self.context():
                # Of shapes that are broadcast, for one.
                warnings.simplefilter("ignore")
                made = eval(text, {"torch": torch, "F": F}, dict(self.known))
        except (RuntimeError, IndexError, TypeError, ValueError, AttributeError, NotImplementedError):
            return None
        if not isinstance(made, Tensor) or not 0 < made.numel() <= MOST_ELEMENTS or made.dtype not in HELD:
            return None
        self.lines.append(f"{name} = {text}")
        self.known[name] = made
        return name


def drawn(writer: Writer, shape: tuple[int, ...], special: bool = False) -> Tensor:
    """Floating-point numbers in memory as it may lie: dense, transposed, with gaps, from the middle of something, or by
    any strides of dimensions of size 1; with channels last, every other one, or all of a dimension the same.
    """
    rng = writer.rng
    layout = writer.one_of(("dense", "dense", "dense", "transposed", "gaps", "part", "ones", "last", "steps", "shared"))
    whole = {
        "gaps": (*shape[:-1], shape[-1] + 3) if shape else shape,
        "part": tuple(n + 2 for n in shape),
        "steps": (*shape[:-1], 2 * shape[-1]) if shape else shape,
        "shared": (1, *shape[1:]) if shape else shape,
    }
    values = rng.standard_normal(whole.get(layout, shape[::-1] if layout == "transposed" else shape))
    if special:
        mask = rng.random(values.shape) < 0.1
        values = np.where(mask, rng.choice(_SPECIAL, values.shape), values)
    tensor = torch.from_numpy(np.asarray(values, dtype=np.float32)).to(writer.floats)
    match layout:
        case "transposed" if shape:
            return tensor.permute(tuple(range(tensor.ndim))[::-1])
        case "gaps" if shape:
            return tensor[..., : shape[-1]]
        case "last" if tensor.ndim > 2:
            return tensor.movedim(1, -1).contiguous().movedim(-1, 1)
        case "steps" if shape:
            return tensor[..., ::2]
        case "shared":
            return tensor.expand(shape)
        case "ones":
            strides = tuple(int(writer.one_of((1, 2, 64, n))) if n == 1 else s for n, s in _dimensions(tensor))
            return tensor.as_strided(tensor.shape, strides)
        case "part":
            return tensor[tuple(slice(1, n + 1) for n in shape)]
        case _:
            return tensor


def copied(tensor: Tensor, device: torch.device) -> Tensor:
    """A copy on that device, with the strides of the tensor."""
    size = span(tuple(tensor.shape), tensor.stride())
    memory = tensor.as_strided((size,), (1,)).to(device, copy=True)
    return memory.as_strided(tensor.shape, tensor.stride())


def _dimensions(tensor: Tensor) -> Iterator[tuple[int, int]]:
    """Sizes and strides."""
    return zip(tensor.shape, tensor.stride(), strict=True)


def integers(writer: Writer, shape: tuple[int, ...]) -> Tensor:
    dtype = writer.one_of((torch.int64, torch.int64, torch.int32, torch.bool))
    # Few of them are large, but those are larger than what float32 holds.
    bound = writer.one_of((2, 9, 9, 100, 2**26))
    return torch.from_numpy(writer.rng.integers(0 if dtype == torch.bool else -bound, bound, shape)).to(dtype)


def pick(writer: Writer, *dtypes: torch.dtype) -> str | None:
    """A value of such a type, rather a new one."""
    names = writer.names(*dtypes)
    if not names:
        return None
    return names[-1] if writer.chance(0.5) else str(writer.one_of(names))


def partner(writer: Writer, name: str) -> str:
    """A value of the same type that broadcasts with that one: one there is, or a new input."""
    tensor = writer.known[name]
    fitting = [n for n in writer.names(tensor.dtype) if n != name and _broadcast(writer.known[n].shape, tensor.shape)]
    if fitting and writer.chance(0.7):
        return str(writer.one_of(fitting))
    if not tensor.dtype.is_floating_point or len(writer.inputs) > 5:
        return name
    kept = tuple(1 if writer.chance(0.2) else n for n in tensor.shape)
    return writer.given(drawn(writer, kept[int(writer.rng.integers(0, len(kept) + 1)) :]))


def _broadcast(a: Sequence[int], b: Sequence[int]) -> bool:
    try:
        torch.broadcast_shapes(tuple(a), tuple(b))
    except RuntimeError:
        return False
    return True
