"""Random PyTorch functions, written out as the text of a function: what a user might have written, and more.

A program is made step by step, and each step is run by PyTorch at once: one that PyTorch refuses is left out. The same
seed makes the same program and the same inputs, on every machine.
"""

from __future__ import annotations

import functools
import linecache
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
# Sizes at and beside the widths of vectors and tiles, and those where everything degenerates.
_SIZES = (1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 33, 49, 64, 65)
_MOST_ELEMENTS = 20_000
_STEPS = (2, 9)
# How often inputs have 0, 1, 2 … dimensions.
_RANKS = (0.06, 0.17, 0.37, 0.25, 0.15)
# Nothing so large that sums and products overflow in one order and not in another.
_SPECIAL = (float("inf"), -float("inf"), float("nan"), 0.0, -0.0, 1e-40, 1e4, 1.0)

_UNARY = (
    "{x}.abs()", "-{x}", "{x}.exp()", "{x}.abs().log()", "{x}.relu().sqrt()", "({x}.abs() + 0.5).rsqrt()",
    "{x}.tanh()", "{x}.erf()", "{x}.sin()", "{x}.cos()", "{x}.floor()", "{x}.ceil()", "{x}.trunc()", "{x}.round()",
    "{x}.sign()", "{x}.sigmoid()", "{x}.relu()", "F.gelu({x})", "F.gelu({x}, approximate='tanh')", "F.silu({x})",
    "F.softplus({x})", "F.elu({x})", "F.leaky_relu({x}, 0.1)", "F.hardswish({x})", "{x}.square()", "{x} ** 3",
    "{x}.abs() ** 1.7", "2 ** {x}", "{x}.exp2()", "{x}.expm1()", "{x}.abs().log1p()", "{x}.abs().log2()",
    "{x}.erfc()", "({x} * 0.1).tan()", "({x} * 0.5).sinh()", "({x} * 0.5).cosh()", "{x}.reciprocal()",
    "{x}.clamp(-1, 1)", "{x}.clamp(min=0.1)", "{x} % 3", "torch.fmod({x}, 2.5)", "{x}.atan()", "{x}.frac()",
    "{x}.logit(eps=0.1)", "{x}.round(decimals=1)", "{x}.nan_to_num()", "F.hardtanh({x}, -0.5, 2.0)",
)  # fmt: skip
_BINARY = (
    "{x} + {y}", "{x} - {y}", "{x} * {y}", "{x} / ({y}.abs() + 0.5)", "torch.maximum({x}, {y})",
    "torch.minimum({x}, {y})", "torch.where({x} > {y}, {x}, {y} * 2)", "torch.add({x}, {y}, alpha=0.5)",
    "torch.sub({x}, {y}, alpha=2)", "{x}.lerp({y}, 0.3)", "torch.addcmul({x}, {x}, {y}, value=0.5)",
    "{x} % ({y}.abs() + 0.5)", "torch.atan2({x}, {y})", "torch.hypot({x}, {y})", "torch.copysign({x}, {y})",
    "{x}.masked_fill({y} > 0.5, -1.0)", "torch.fmax({x}, {y})", "{x}.abs() ** {y}.clamp(-2, 2)",
)  # fmt: skip
_WITH_NUMBER = (
    "{x} + {n}", "{n} - {x}", "{x} * {n}", "{x} / {n}", "{x} > {n}", "{x} <= {n}", "{x} == {n}", "{n} / ({x} + 3)",
    "{x}.clamp(max={n})", "torch.where({x} < {n}, {x}, {n})", "{x} ** 2 + {n}", "{x} != {n}",
)  # fmt: skip
_OF_INTEGERS = (
    "{x} + {y}", "{x} - {y}", "{x} * {y}", "{x} // ({y}.abs() + 1)", "{x} % ({y}.abs() + 1)", "{x} == {y}", "{x} < {y}",
    "{x}.abs()", "-{x}", "{x} * 3 + 1", "{x} // 4", "{x} % 7", "{x} & {y}", "{x} | 5", "{x} ^ {y}", "{x}.sign()",
    "torch.maximum({x}, {y})", "{x}.clamp(0, 5)", "{x}.sum(-1)", "{x}.float() * 0.5", "{x}.to(torch.bfloat16)",
    "{x}.amax()", "{x} > 2", "{x} / 3", "{x}.to(torch.int32)", "{x}.long() * {y}.long()", "{x}.argmax(-1)",
)  # fmt: skip
_OF_BOOLEANS = (
    "~{x}", "{x} & {y}", "{x} | {y}", "{x} ^ {y}", "{x}.any(-1)", "{x}.all()", "{x}.sum(-1)", "{x}.float()",
    "{x}.long() + 1", "torch.where({x}, 1.0, -2.0)", "{x}.any()", "{x}.int().sum(0)",
)  # fmt: skip
_REDUCTIONS = (
    "{x}.sum({d}, keepdim={k})", "{x}.mean({d}, keepdim={k})", "{x}.amax({d}, keepdim={k})",
    "{x}.amin({d}, keepdim={k})", "{x}.var({d}, keepdim={k}, correction=0)", "{x}.std({d}, keepdim={k}, correction=0)",
    "{x}.logsumexp({d}, keepdim={k})", "{x}.norm(dim={d}, keepdim={k})", "({x} > 0).any({d}, keepdim={k})",
    "({x} > -1).sum({d}, keepdim={k})", "{x}.sum({d}, keepdim={k}, dtype=torch.float32)",
)  # fmt: skip
_ALONG_ONE = (
    "{x}.softmax({d})", "{x}.log_softmax({d})", "{x}.argmax({d})", "{x}.argmin({d}, keepdim=True)",
    "{x}.max({d})[0]", "{x}.min({d})[1]", "{x}.prod({d})", "F.normalize({x}, dim={d})", "{x} - {x}.mean({d}, True)",
    "F.softmin({x}, {d})", "{x}.cumsum({d})", "{x}.flip({d}).cumsum({d})", "{x}.tanh().cumprod({d})",
    "{x}.cummax({d})[0]", "{x}.cummin({d})[1]", "({x} > 0).cumsum({d})",
)  # fmt: skip
_VIEWS = (
    "{x}.transpose({d}, {e})", "{x}.flatten()", "{x}.unsqueeze({d})", "{x}.squeeze()", "{x}[..., None]", "{x}[None]",
    "{x}.flatten({d})", "{x}.movedim({d}, {e})", "{x}.clone()", "{x}.contiguous()", "{x}.mT", "{x}.reshape(-1)",
    "{x}.transpose({d}, {e}).contiguous()", "{x}.transpose({d}, {e}).reshape({x}.shape)", "{x} * 1.5",
)  # fmt: skip


# Parts put together, taken apart and moved; of what has any dimensions, and then of two or four.
_MOVED = (
    "torch.cat(({x}, {y}), {d})", "torch.cat(({x}, {x}.abs(), {y} * 0.5), {d})", "torch.stack(({x}, {y}), {d})",
    "torch.stack(({x}, -{x}), -1).flatten(-2)", "{x}.flip({d})", "{x}.flip(tuple(range({x}.ndim)))",
    "{x}.roll(2, {d})", "torch.cat({x}.chunk(2, {d})[::-1], {d})", "{x}.repeat_interleave(2, {d})",
    "{x}.chunk(2, {d})[-1]", "{x}.chunk(3, {d})[0] * 2", "{x}.unbind({d})[-1]", "{x}.narrow({d}, 0, 1)",
    "F.pad({x}, (1, 2))", "F.pad({x}, (0, 3), value=-1.5)", "F.pad({x}, (-1, 2), value=0.5)", "{x}.unfold({d}, 2, 1)",
    "{x}.unfold({d}, 3, 2).amax(-1)", "{x}[..., 1:] - {x}[..., :-1]", "{x}[..., ::2] * {x}[..., 1::2]",
    "{x}.expand(2, *{x}.shape).sum(0)", "{x}.tile((2,) * {x}.ndim)",
    "({x}[..., 1::2] * {y}[..., :-1:2]).sum({d}) - (-{x}[..., :-1:2] * {y}[..., 1::2]).sum({d})",
    "torch.stack(({x}[..., ::2] * 2, -{x}[..., ::2]), -1).flatten(-2)",
)  # fmt: skip
_MOVED_PLANES = (
    "F.pad({x}, (1, 1, 2, 0))", "F.pad({x}[None], (2, 1), mode='reflect')[0]", "{x}.tril(-1)",
    "F.pad({x}[None], (1, 2), mode='replicate')[0]", "{x}.triu(1)", "torch.diagonal({x})",
    "F.pad({x}[None], (1, 1), mode='circular')[0]",
    "F.max_pool1d({x}, 2)", "F.avg_pool1d({x}, 3, 1, 1)", "{x}.tril().sum(0)", "{x}.rot90()", "F.glu({x}, -1)",
)  # fmt: skip
_MOVED_IMAGES = (
    "F.max_pool2d({x}, 2)", "F.max_pool2d({x}, 3, 2, 1)", "F.avg_pool2d({x}, 2)", "F.avg_pool2d({x}, 3, 1, 1)",
    "F.pad({x}, (1, 1, 1, 1), mode='reflect')", "F.pad({x}, (1, 0, 0, 1), mode='replicate')",
    "F.pixel_unshuffle({x}, 1)", "F.pad({x}, (1, 1, 1, 1))[..., 2:, 1:-1] + {x}",
    "{x}.mean((2, 3))", "{x}.sum((0, 2, 3))", "{x}.amax((0, 2))",
    "{x}.var((0, 2, 3), correction=0)", "F.interpolate({x}, scale_factor=2)", "F.channel_shuffle({x}, 1)",
)  # fmt: skip


@dataclass(frozen=True)
class Program:
    """A function and its inputs. `text` is its source; `differentiated`: its gradient is wanted as well."""

    seed: int
    text: str
    inputs: tuple[Tensor, ...]
    differentiated: bool = False

    @property
    def function(self) -> Callable[..., Any]:
        """The function, made of the text; its lines are known to tracebacks."""
        name = f"program_{self.seed}.py"
        linecache.cache[name] = (len(self.text), None, self.text.splitlines(keepends=True), name)
        space: dict[str, Any] = {"torch": torch, "F": F}
        exec(compile(self.text, name, "exec"), space)
        made = space["program"]
        assert callable(made)
        return made

    def __str__(self) -> str:
        given = ", ".join(f"x{n}: {x.dtype} {list(x.shape)} by {x.stride()}" for n, x in enumerate(self.inputs))
        return f"seed {self.seed}: {given}{' with gradients' if self.differentiated else ''}\n{self.text}"


@dataclass
class _Writer:
    """A program while it is written: what its names hold, and its lines."""

    rng: np.random.Generator
    floats: torch.dtype
    known: dict[str, Tensor] = field(default_factory=dict)
    inputs: list[Tensor] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def one_of(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def names(self, *dtypes: torch.dtype) -> list[str]:
        return [n for n, t in self.known.items() if t.dtype in dtypes]

    def shape(self, rank: int) -> tuple[int, ...]:
        while True:
            shape = tuple(int(self.one_of(_SIZES)) for _ in range(rank))
            if np.prod(shape, initial=1) <= _MOST_ELEMENTS:
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
            with warnings.catch_warnings():
                # Of shapes that are broadcast, for one.
                warnings.simplefilter("ignore")
                made = eval(text, {"torch": torch, "F": F}, dict(self.known))
        except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
            return None
        if not isinstance(made, Tensor) or not 0 < made.numel() <= _MOST_ELEMENTS or made.dtype not in _HELD:
            return None
        self.lines.append(f"{name} = {text}")
        self.known[name] = made
        return name


_HELD = (*FLOATS, torch.int64, torch.int32, torch.bool)


def generate(seed: int, gradients: bool | None = None, dtype: torch.dtype | None = None) -> Program:
    """The program of that seed. `gradients` and `dtype` are drawn unless they are given: a third has gradients."""
    while True:
        made = _generated(np.random.default_rng(seed), seed, gradients, dtype)
        if made is not None:
            return made
        seed += 1_000_000_007


def _generated(
    rng: np.random.Generator, seed: int, gradients: bool | None, dtype: torch.dtype | None
) -> Program | None:
    floats = dtype or FLOATS[int(rng.integers(len(FLOATS)))]
    differentiated = bool(rng.random() < 1 / 3) if gradients is None else gradients
    writer = _Writer(rng, floats)
    # Values that are no ordinary numbers have gradients that nobody checks by.
    special = not differentiated and writer.chance(0.15)
    for _ in range(int(rng.integers(1, 4))):
        writer.given(_drawn(writer, writer.shape(int(rng.choice(5, p=_RANKS))), special))
    if writer.chance(0.3):
        writer.given(_integers(writer, writer.shape(int(rng.integers(1, 4)))))
    wanted = int(rng.integers(*_STEPS))
    for _ in range(6 * wanted):
        if len(writer.lines) < wanted:
            _write(writer)
    results = _results(writer, differentiated)
    if not results:
        return None
    arguments = ", ".join(f"x{n}" for n in range(len(writer.inputs)))
    body = "\n".join(f"    {line}" for line in [*writer.lines, f"return {', '.join(results)}"])
    return Program(seed, f"def program({arguments}):\n{body}\n", tuple(writer.inputs), differentiated)


def _results(writer: _Writer, differentiated: bool) -> list[str]:
    """What nothing else is made of, and perhaps others; of a function with gradients, those that have one."""
    made = [n for n in writer.known if n.startswith("v")]
    if differentiated:
        made = [n for n in made if writer.known[n].dtype == writer.floats]
    used = set(re.findall(r"\bv\d+", " ".join(line.partition(" = ")[2] for line in writer.lines)))
    last = [n for n in made if n not in used] or made[-1:]
    return [n for n in made if n in last or writer.chance(0.25)]


def _drawn(writer: _Writer, shape: tuple[int, ...], special: bool = False) -> Tensor:
    """Floating-point numbers in memory as it may lie: dense, transposed, with gaps, or from the middle of something."""
    rng = writer.rng
    layout = writer.one_of(("dense", "dense", "dense", "transposed", "gaps", "part"))
    whole = {"gaps": (*shape[:-1], shape[-1] + 3) if shape else shape, "part": tuple(n + 2 for n in shape)}
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
        case "part":
            return tensor[tuple(slice(1, n + 1) for n in shape)]
        case _:
            return tensor


def _integers(writer: _Writer, shape: tuple[int, ...]) -> Tensor:
    dtype = writer.one_of((torch.int64, torch.int64, torch.int32, torch.bool))
    # Few of them are large, but those are larger than what float32 holds.
    bound = writer.one_of((2, 9, 9, 100, 2**26))
    return torch.from_numpy(writer.rng.integers(0 if dtype == torch.bool else -bound, bound, shape)).to(dtype)


def _write(writer: _Writer) -> None:
    """One step more, of some kind."""
    kinds = tuple(_KINDS)
    weights = np.array([_KINDS[k] for k in kinds], dtype=float)
    kinds[int(writer.rng.choice(len(kinds), p=weights / weights.sum()))](writer)


def _pick(writer: _Writer, *dtypes: torch.dtype) -> str | None:
    """A value of such a type, rather a new one."""
    names = writer.names(*dtypes)
    if not names:
        return None
    return names[-1] if writer.chance(0.5) else str(writer.one_of(names))


def _partner(writer: _Writer, name: str) -> str:
    """A value of the same type that broadcasts with that one: one there is, or a new input."""
    tensor = writer.known[name]
    fitting = [n for n in writer.names(tensor.dtype) if n != name and _broadcast(writer.known[n].shape, tensor.shape)]
    if fitting and writer.chance(0.7):
        return str(writer.one_of(fitting))
    if not tensor.dtype.is_floating_point or len(writer.inputs) > 5:
        return name
    kept = tuple(1 if writer.chance(0.2) else n for n in tensor.shape)
    return writer.given(_drawn(writer, kept[int(writer.rng.integers(0, len(kept) + 1)) :]))


def _broadcast(a: Sequence[int], b: Sequence[int]) -> bool:
    try:
        torch.broadcast_shapes(tuple(a), tuple(b))
    except RuntimeError:
        return False
    return True


def _pointwise(writer: _Writer) -> None:
    if name := _pick(writer, writer.floats, torch.float32):
        writer.step(writer.one_of(_UNARY).format(x=name))


def _two(writer: _Writer) -> None:
    if name := _pick(writer, writer.floats, torch.float32):
        writer.step(writer.one_of(_BINARY).format(x=name, y=_partner(writer, name)))


def _number(writer: _Writer) -> None:
    if name := _pick(writer, writer.floats, torch.float32, torch.int64, torch.int32):
        n = writer.one_of(("0.1", "2", "-1", "0.5", "3", "1e-3", "7"))
        writer.step(writer.one_of(_WITH_NUMBER).format(x=name, n=n))


def _integer(writer: _Writer) -> None:
    if name := _pick(writer, torch.int64, torch.int32):
        writer.step(writer.one_of(_OF_INTEGERS).format(x=name, y=_partner(writer, name)))


def _boolean(writer: _Writer) -> None:
    if name := _pick(writer, torch.bool):
        writer.step(writer.one_of(_OF_BOOLEANS).format(x=name, y=_partner(writer, name)))


def _reduced(writer: _Writer) -> None:
    name = _pick(writer, writer.floats, torch.float32)
    if name and (rank := writer.known[name].ndim):
        if writer.chance(0.4):
            d = int(writer.rng.integers(-rank, rank))
            writer.step(writer.one_of(_ALONG_ONE).format(x=name, d=d))
            return
        dims = tuple(d for d in range(rank) if writer.chance(0.4)) or (rank - 1,)
        writer.step(writer.one_of(_REDUCTIONS).format(x=name, d=dims, k=writer.chance(0.5)))


def _viewed(writer: _Writer) -> None:
    name = _pick(writer, *_HELD)
    if name and (rank := writer.known[name].ndim):
        d, e = (int(i) for i in writer.rng.integers(-rank, rank, 2))
        writer.step(writer.one_of(_VIEWS).format(x=name, d=d, e=e))


def _sliced(writer: _Writer) -> None:
    name = _pick(writer, *_HELD)
    if not name or not (shape := writer.known[name].shape):
        return
    parts = [_part(writer, n) for n in shape]
    writer.step(f"{name}[{', '.join(parts)}]")


def _part(writer: _Writer, size: int) -> str:
    begin = int(writer.rng.integers(0, size))
    return str(writer.one_of((":", ":", ":", f"{begin}:", f"{begin}", f":{begin + 1}", f"{begin}::2", "-1:", "::3")))


def _assigned(writer: _Writer) -> None:
    """A copy with a part written over, in place."""
    name = _pick(writer, writer.floats)
    if not name or not (shape := writer.known[name].shape):
        return
    made = writer.step(f"{name}.clone()")
    if made is None:
        return
    line = f"{made}[{', '.join(_part(writer, n) for n in shape)}]"
    change = writer.one_of((f"{line} = 0.5", f"{line} *= 2", f"{line} += 1"))
    # Values are their own, so that nothing else changes with them.
    exec(change, {"torch": torch}, dict(writer.known))
    writer.lines.append(change)


def _multiplied(writer: _Writer) -> None:
    name = _pick(writer, writer.floats)
    if not name or not (shape := tuple(writer.known[name].shape)):
        return
    n, k = int(writer.one_of(_SIZES)), shape[-1]
    match int(writer.rng.integers(7)):
        case 0:
            writer.step(f"{name} @ {writer.given(_drawn(writer, (k, n)))}")
        case 1:
            w, b = writer.given(_drawn(writer, (n, k))), writer.given(_drawn(writer, (n,)))
            writer.step(f"F.linear({name}, {w}, {b})")
        case 2 if len(shape) >= 2:
            writer.step(f"{name} @ {name}.transpose(-1, -2)")
        case 3 if len(shape) == 3:
            other = writer.given(_drawn(writer, (n, shape[1], k)))
            writer.step(f"torch.einsum('bqd,kqd->qbk', {name}, {other})")
        case 4 if len(shape) == 2:
            c, w = writer.given(_drawn(writer, (shape[0], n))), writer.given(_drawn(writer, (k, n)))
            beta, alpha = writer.one_of((0, 1, 0.5)), writer.one_of((1, 2))
            writer.step(f"torch.addmm({c}, {name}, {w}, beta={beta}, alpha={alpha})")
        case 5 if len(shape) == 4:
            causal = writer.chance(0.5)
            writer.step(f"F.scaled_dot_product_attention({name}, {name}, {name} * 0.5, is_causal={causal})")
        case _:
            writer.step(f"({name} @ {writer.given(_drawn(writer, (k, n)))}).transpose(-1, -2) * 0.5")


def _looked_up(writer: _Writer) -> None:
    name = _pick(writer, writer.floats)
    if not name or not (shape := writer.known[name].shape) or len(writer.inputs) > 6:
        return
    d = int(writer.rng.integers(len(shape)))
    index = functools.partial(writer.rng.integers, 0, shape[d])
    match int(writer.rng.integers(4)):
        case 0:
            at = writer.given(torch.from_numpy(index((int(writer.one_of(_SIZES)),))))
            writer.step(f"{name}.index_select({d}, {at})")
        case 1:
            at = writer.given(torch.from_numpy(index((*shape[:d], int(writer.one_of(_SIZES[:8])), *shape[d + 1 :]))))
            writer.step(f"{name}.gather({d}, {at})")
        case 2:
            at = writer.given(torch.from_numpy(index((3, 2))))
            writer.step(f"{name}[{':, ' * d}{at}]")
        case _ if len(shape) == 2 and d == 0:
            at = writer.given(torch.from_numpy(index((4, 3))))
            writer.step(f"F.embedding({at}, {name})")


def _normalised(writer: _Writer) -> None:
    name = _pick(writer, writer.floats)
    if not name or not (shape := writer.known[name].shape):
        return
    c = shape[-1]
    match int(writer.rng.integers(5)):
        case 0:
            w, b = writer.given(_drawn(writer, (c,))), writer.given(_drawn(writer, (c,)))
            writer.step(f"F.layer_norm({name}, ({c},), {w}, {b})")
        case 1:
            writer.step(f"F.rms_norm({name}, ({c},))")
        case 2 if len(shape) > 1 and shape[1] % 2 == 0:
            writer.step(f"F.group_norm({name}, 2)")
        case 3 if len(shape) == 2:
            at = writer.given(torch.from_numpy(writer.rng.integers(0, c, (shape[0],))))
            writer.step(f"F.cross_entropy({name}, {at}, reduction='{writer.one_of(('none', 'mean', 'sum'))}')")
        case _:
            writer.step(f"F.mse_loss({name}, {_partner(writer, name)})")


def _created(writer: _Writer) -> None:
    name = _pick(writer, writer.floats)
    if not name or not (shape := writer.known[name].shape):
        return
    c = shape[-1]
    positions, alike = f"torch.arange({c}, device={name}.device)", f"dtype={name}.dtype, device={name}.device"
    choices = (
        f"{name} * {positions}", f"{name}.masked_fill({positions} > {c // 2}, 0.0)", f"torch.zeros_like({name})",
        f"{name}.tril()", f"{name}.triu(1)", f"{name} + torch.eye({c}, {alike})",
        f"{name}.masked_fill({positions}[:, None] < {positions}, -1e9)", f"torch.full_like({name}, 0.5)",
        f"torch.ones({c}, {alike}) - {name}", 
        f"{name}.to(torch.float32)", f"({name} * 3).to(torch.int64)",
    )  # fmt: skip
    writer.step(writer.one_of(choices))


def _moved(writer: _Writer) -> None:
    name = _pick(writer, *_HELD)
    if not name or not (rank := writer.known[name].ndim):
        return
    choices = _MOVED + {2: _MOVED_PLANES, 4: _MOVED_IMAGES}.get(rank, ()) * 2
    d = int(writer.rng.integers(-rank, rank))
    writer.step(writer.one_of(choices).format(x=name, y=_partner(writer, name), d=d))


# Kinds of steps, and how often each is written.
_KINDS: Mapping[Callable[[_Writer], None], float] = {
    _pointwise: 5, _two: 4, _number: 2, _integer: 2, _boolean: 2, _reduced: 4, _viewed: 3, _sliced: 1.5, _assigned: 0.7,
    _multiplied: 2.5, _looked_up: 1, _normalised: 1.2, _created: 1, _moved: 3,
}  # fmt: skip
