"""Random PyTorch functions, written out as the text of a function: what a user might have written, and more.

A program is made step by step, and each step is run by PyTorch at once: one that PyTorch refuses is left out. The same
seed makes the same program and the same inputs, on every machine.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping

import numpy as np
import torch

from program_convolutions import convolved
from program_parts import assigned_whole, model_part, reduced_again, same
from program_writer import FLOATS, HELD, RANKS, SIZES, STEPS, Program, Writer, drawn, integers, partner, pick

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


def generate(
    seed: int, gradients: bool | None = None, dtype: torch.dtype | None = None, images: bool = False
) -> Program:
    """The program of that seed. `gradients` and `dtype` are drawn unless they are given: a third has gradients.
    `images`: it begins with a convolution.
    """
    while True:
        made = _generated(np.random.default_rng(seed), seed, gradients, dtype, images)
        if made is not None:
            return made
        seed += 1_000_000_007


def _generated(
    rng: np.random.Generator, seed: int, gradients: bool | None, dtype: torch.dtype | None, images: bool
) -> Program | None:
    floats = dtype or FLOATS[int(rng.integers(len(FLOATS)))]
    differentiated = bool(rng.random() < 1 / 3) if gradients is None else gradients
    writer = Writer(rng, floats, ones=float(rng.choice((0.0, 0.0, 0.4))))
    # Values that are no ordinary numbers have gradients that nobody checks by.
    writer.special = not differentiated and writer.chance(0.15)
    writer.autocast = writer.one_of((torch.bfloat16, torch.float16)) if writer.chance(0.05) else None
    if images:
        convolved(writer)
    for _ in range(int(rng.integers(0 if images else 1, 4))):
        writer.given(drawn(writer, writer.shape(int(rng.choice(5, p=RANKS))), writer.special))
    if writer.chance(0.3):
        writer.given(integers(writer, writer.shape(int(rng.integers(1, 4)))))
    wanted = int(rng.integers(*STEPS))
    for _ in range(6 * wanted):
        if len(writer.lines) < wanted:
            _write(writer)
    results = _results(writer, differentiated)
    if not results:
        return None
    named = {f"x{n}": x for n, x in enumerate(writer.inputs)}
    closes = writer.chance(0.3)
    closed_over = {
        n: x for n, x in named.items() if n != "x0" and x.is_floating_point() and closes and writer.chance(0.5)
    }
    inputs = tuple(x for n, x in named.items() if n not in closed_over)
    head = [f"def program({', '.join(n for n in named if n not in closed_over)}):"]
    if writer.autocast is not None:
        head.append(f"    with torch.autocast(x0.device.type, {writer.autocast}):")
    body = [f"{'    ' * len(head)}{line}" for line in [*writer.lines, f"return {', '.join(results)}"]]
    text = "".join(f"{line}\n" for line in [*head, *body])
    return Program(seed, text, inputs, differentiated, closed_over)


def _results(writer: Writer, differentiated: bool) -> list[str]:
    """What nothing else is made of, and perhaps others; of a function with gradients, those that have one."""
    made = [n for n in writer.known if n.startswith("v")]
    if differentiated:
        made = [n for n in made if writer.known[n].dtype == writer.floats]
    used = set(re.findall(r"\bv\d+", " ".join(line.partition(" = ")[2] for line in writer.lines)))
    last = [n for n in made if n not in used] or made[-1:]
    results = [n for n in made if n in last or writer.chance(0.25)]
    # Arguments themselves, and a result twice.
    given = [n for n in writer.known if n.startswith("x") and writer.known[n].dtype == writer.floats]
    others = [*given, *results]
    return [*results, *(str(writer.one_of(others)) for _ in range(2) if results and writer.chance(0.1))]


def _write(writer: Writer) -> None:
    """One step more, of some kind."""
    kinds = tuple(_KINDS)
    weights = np.array([_KINDS[k] for k in kinds], dtype=float)
    kinds[int(writer.rng.choice(len(kinds), p=weights / weights.sum()))](writer)


def _pointwise(writer: Writer) -> None:
    if name := pick(writer, writer.floats, torch.float32):
        writer.step(writer.one_of(_UNARY).format(x=name))


def _two(writer: Writer) -> None:
    if name := pick(writer, writer.floats, torch.float32):
        writer.step(writer.one_of(_BINARY).format(x=name, y=partner(writer, name)))


def _number(writer: Writer) -> None:
    if name := pick(writer, writer.floats, torch.float32, torch.int64, torch.int32):
        n = writer.one_of(("0.1", "2", "-1", "0.5", "3", "1e-3", "7"))
        writer.step(writer.one_of(_WITH_NUMBER).format(x=name, n=n))


def _integer(writer: Writer) -> None:
    if name := pick(writer, torch.int64, torch.int32):
        writer.step(writer.one_of(_OF_INTEGERS).format(x=name, y=partner(writer, name)))


def _boolean(writer: Writer) -> None:
    if name := pick(writer, torch.bool):
        writer.step(writer.one_of(_OF_BOOLEANS).format(x=name, y=partner(writer, name)))


def _reduced(writer: Writer) -> None:
    name = pick(writer, writer.floats, torch.float32)
    if name and (rank := writer.known[name].ndim):
        if writer.chance(0.4):
            d = int(writer.rng.integers(-rank, rank))
            writer.step(writer.one_of(_ALONG_ONE).format(x=name, d=d))
            return
        dims = tuple(d for d in range(rank) if writer.chance(0.4)) or (rank - 1,)
        writer.step(writer.one_of(_REDUCTIONS).format(x=name, d=dims, k=writer.chance(0.5)))


def _viewed(writer: Writer) -> None:
    name = pick(writer, *HELD)
    if name and (rank := writer.known[name].ndim):
        d, e = (int(i) for i in writer.rng.integers(-rank, rank, 2))
        writer.step(writer.one_of(_VIEWS).format(x=name, d=d, e=e))


def _sliced(writer: Writer) -> None:
    name = pick(writer, *HELD)
    if not name or not (shape := writer.known[name].shape):
        return
    parts = [_part(writer, n) for n in shape]
    writer.step(f"{name}[{', '.join(parts)}]")


def _part(writer: Writer, size: int) -> str:
    begin = int(writer.rng.integers(0, size))
    return str(writer.one_of((":", ":", ":", f"{begin}:", f"{begin}", f":{begin + 1}", f"{begin}::2", "-1:", "::3")))


def _assigned(writer: Writer) -> None:
    """A copy with a part written over, in place."""
    name = pick(writer, writer.floats)
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


def _multiplied(writer: Writer) -> None:
    name = pick(writer, writer.floats)
    if not name or not (shape := tuple(writer.known[name].shape)):
        return
    n, k = int(writer.one_of(SIZES)), shape[-1]
    match int(writer.rng.integers(7)):
        case 0:
            writer.step(f"{name} @ {writer.given(drawn(writer, (k, n)))}")
        case 1:
            w, b = writer.given(drawn(writer, (n, k))), writer.given(drawn(writer, (n,)))
            writer.step(f"F.linear({name}, {w}, {b})")
        case 2 if len(shape) >= 2:
            writer.step(f"{name} @ {name}.transpose(-1, -2)")
        case 3 if len(shape) == 3:
            other = writer.given(drawn(writer, (n, shape[1], k)))
            writer.step(f"torch.einsum('bqd,kqd->qbk', {name}, {other})")
        case 4 if len(shape) == 2:
            c, w = writer.given(drawn(writer, (shape[0], n))), writer.given(drawn(writer, (k, n)))
            beta, alpha = writer.one_of((0, 1, 0.5)), writer.one_of((1, 2))
            writer.step(f"torch.addmm({c}, {name}, {w}, beta={beta}, alpha={alpha})")
        # Of rows of scores of minus infinity PyTorch's kernels make 0, and its documentation NaN.
        case 5 if len(shape) == 4 and writer.known[name].isfinite().all():
            causal = writer.chance(0.5)
            writer.step(f"F.scaled_dot_product_attention({name}, {name}, {name} * 0.5, is_causal={causal})")
        case _:
            writer.step(f"({name} @ {writer.given(drawn(writer, (k, n)))}).transpose(-1, -2) * 0.5")


def _looked_up(writer: Writer) -> None:
    name = pick(writer, writer.floats)
    if not name or not (shape := writer.known[name].shape) or len(writer.inputs) > 6:
        return
    d = int(writer.rng.integers(len(shape)))
    index = functools.partial(writer.rng.integers, 0, shape[d])
    match int(writer.rng.integers(4)):
        case 0:
            at = writer.given(torch.from_numpy(index((int(writer.one_of(SIZES)),))))
            writer.step(f"{name}.index_select({d}, {at})")
        case 1:
            at = writer.given(torch.from_numpy(index((*shape[:d], int(writer.one_of(SIZES[:8])), *shape[d + 1 :]))))
            writer.step(f"{name}.gather({d}, {at})")
        case 2:
            at = writer.given(torch.from_numpy(index((3, 2))))
            writer.step(f"{name}[{':, ' * d}{at}]")
        case _ if len(shape) == 2 and d == 0:
            at = writer.given(torch.from_numpy(index((4, 3))))
            writer.step(f"F.embedding({at}, {name})")


def _normalised(writer: Writer) -> None:
    name = pick(writer, writer.floats)
    if not name or not (shape := writer.known[name].shape):
        return
    c = shape[-1]
    match int(writer.rng.integers(5)):
        case 0:
            w, b = writer.given(drawn(writer, (c,))), writer.given(drawn(writer, (c,)))
            writer.step(f"F.layer_norm({name}, ({c},), {w}, {b})")
        case 1:
            writer.step(f"F.rms_norm({name}, ({c},))")
        case 2 if len(shape) > 1 and shape[1] % 2 == 0:
            writer.step(f"F.group_norm({name}, 2)")
        case 3 if len(shape) == 2:
            at = writer.given(torch.from_numpy(writer.rng.integers(0, c, (shape[0],))))
            writer.step(f"F.cross_entropy({name}, {at}, reduction='{writer.one_of(('none', 'mean', 'sum'))}')")
        case _:
            writer.step(f"F.mse_loss({name}, {partner(writer, name)})")


def _created(writer: Writer) -> None:
    name = pick(writer, writer.floats)
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


def _moved(writer: Writer) -> None:
    name = pick(writer, *HELD)
    if not name or not (rank := writer.known[name].ndim):
        return
    choices = _MOVED + {2: _MOVED_PLANES, 4: _MOVED_IMAGES}.get(rank, ()) * 2
    d = int(writer.rng.integers(-rank, rank))
    writer.step(writer.one_of(choices).format(x=name, y=partner(writer, name), d=d))


# Kinds of steps, and how often each is written.
_KINDS: Mapping[Callable[[Writer], None], float] = {
    _pointwise: 5, _two: 4, _number: 2, _integer: 2, _boolean: 2, _reduced: 4, _viewed: 3, _sliced: 1.5, _assigned: 0.7,
    _multiplied: 2.5, _looked_up: 1, _normalised: 1.2, _created: 1, _moved: 3, reduced_again: 2.5, same: 3,
    assigned_whole: 0.3, model_part: 1.5, convolved: 2.5,
}  # fmt: skip
