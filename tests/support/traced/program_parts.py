"""Larger parts of random programs: pieces of models, reductions of reductions, and copies that have nothing to do."""

from __future__ import annotations

import torch
from torch import Tensor

from program_writer import Writer, drawn, partner, pick

# Of whole models, kept small: batches, lengths, heads, widths of a head, entries of a table, channels, sides.
_BATCHES, _LENGTHS, _HEADS, _WIDTHS = (1, 1, 2, 3), (1, 2, 5, 8, 16, 33), (1, 2, 4), (1, 2, 4, 8, 16)
_ENTRIES, _CHANNELS, _SIDES = (1, 7, 33, 100), (1, 2, 4, 8), (1, 2, 5, 8)

_REDUCED_AGAIN = (
    "({y} / {x}.abs().amax().clamp(min=0.1)).sum()", "{x} - {x}.mean()", "(({x} - {x}.mean({d}, True)) ** 2).sum({d})",
    "({x} / {x}.abs().amax({d}, True).clamp(min=0.1)).sum()", "({x}.sum({d}) * {x}.amax({d})).amax()",
    "({x} - {y}.mean()).abs().amax()", "({x}.softmax({d}) * {y}).sum()", "{x}.sum() / ({x} > 0).sum().clamp(min=1)",
    "{x}.amax() - {x}.amin()", "({x} - {x}.amin()) / ({x}.amax() - {x}.amin() + 1)", "{x} / ({x}.norm() + 1)",
    "({x}.mean() - {x}.mean({d})).abs().sum()", "({x} - {x}.logsumexp({d}, True)).exp().sum({d})",
    "({x} * {y}).sum({d}) / (({x} * {x}).sum({d}) * ({y} * {y}).sum({d}) + 1).sqrt()",
    "{x}.sum({d}).softmax(-1)", "({x} - {x}.amax({d}, True)).exp().sum().log()", "({x} > {x}.mean()).sum()",
    "({x}.var(correction=0) + 1).rsqrt() * ({x} - {x}.mean({d}, True))", "{x}.amax({d}).amin()",
    "{x}.sum() + {y}.sum()",
    "({x} - {x}.sum({d}, True) * {x}.sum() * 1e-3).amax({d})", "{x}.mean({d}).mean()", "{x}.argmax({d}).sum()",
)  # fmt: skip
# What PyTorch copies and what it does not, with the same elements or a part of them.
_SAME = (
    "torch.cat(({x},))", "torch.stack(({x},))[0]", "{x}.repeat((1,) * {x}.ndim)", "{x}.roll(0)", "{x}.roll({n}, {d})",
    "F.pad({x}, (0, 0))", "{x}.flip(())", "torch.empty_like({x}).copy_({x})", "{x}.slice_scatter({x})",
    "{x}.tile(())", "{x}.clone()", "{x}.contiguous()", "{x}.to({x}.dtype)", "{x}.flip({d})[::2]",
    "{x}.expand({x}.shape)", "{x}.narrow({d}, 0, {n})", "{x}.index_select({d}, torch.arange({n}, device={x}.device))",
    "{x}.view_as({x})", "F.dropout({x}, 0.5, False)", "{x}.movedim(0, -1)",
    "torch.meshgrid({x}.flatten()[:9], {y}.flatten()[:7])[0]",
    "torch.meshgrid({x}.flatten()[:9] * 2, {y}.flatten()[:7])[1]", "{x}.squeeze({d})", "{x}.unsqueeze(0)",
    "{x}.select({d}, 0)", "{x}.diagonal()", "{x} + 0", "{x} * 1", "torch.broadcast_tensors({x}, {y})[0]",
    "{x}.unfold({d}, 1, 1)", "{x}[...]", "{x}.transpose(0, {d})", "{x}.reshape(-1)", "{x}.reshape({x}.shape[::-1])",
    "{x}.sum({d}, keepdim=True)", "{x}.amax({d})", "{x}.cumsum({d})", "{x}.tril(99)", "{x}.split({n}, {d})[0]",
    "torch.hstack(({x},))", "{x}.flip({d}).flip({d})", "torch.cat(({x}, {x}[:0]))", "{x}.chunk(1, {d})[0]",
    "({x} * 2).transpose(0, {d})", "({x} * 2)[1:]", "({x} * 2)[..., ::2]", "{x}.new_empty({x}.shape).copy_({x})[-1:]",
    "{x}.clone()[:, None]", "torch.atleast_2d({x})", "{x}.masked_fill({x} != {x}, 0.0)", "{x}.expand(2, *{x}.shape)",
)  # fmt: skip


def reduced_again(writer: Writer) -> None:
    """Reductions that need what others reduce to."""
    name = pick(writer, writer.floats, torch.float32)
    if name and (rank := writer.known[name].ndim):
        d = int(writer.rng.integers(-rank, rank))
        writer.step(writer.one_of(_REDUCED_AGAIN).format(x=name, y=partner(writer, name), d=d))


def same(writer: Writer) -> None:
    """Elements that are there already, copied or viewed."""
    name = pick(writer, writer.floats, torch.int64)
    if not name:
        return
    shape = writer.known[name].shape
    d = int(writer.rng.integers(-len(shape), len(shape))) if shape else 0
    n = shape[d] if shape else 1
    writer.step(writer.one_of(_SAME).format(x=name, y=partner(writer, name), d=d, n=n))


def assigned_whole(writer: Writer) -> None:
    """A tensor all of which is written over, in place."""
    name = pick(writer, writer.floats)
    made = name and writer.step(f"torch.zeros_like({name})")
    if made:
        change = f"{made}[...] = {name}" if writer.chance(0.5) else f"{made}.add_({name})"
        exec(change, {"torch": torch}, dict(writer.known))
        writer.lines.append(change)


def model_part(writer: Writer) -> None:
    """A piece of a model: attention, a gated layer, an embedding, rotations, norms of images, a loss."""
    if len(writer.inputs) <= 5:
        writer.one_of((_attention, _gated, _embedded, _rotated, _of_images, _loss, _cached, _pooled))(writer)


def _tokens(writer: Writer, width: int) -> str:
    return _new(writer, int(writer.one_of(_BATCHES)), int(writer.one_of(_LENGTHS)), width)


def _new(writer: Writer, *shape: int) -> str:
    return writer.given(drawn(writer, shape))


def _whole_numbers(writer: Writer, below: int, *shape: int) -> str:
    return writer.given(torch.from_numpy(writer.rng.integers(0, below, shape)))


def _attention(writer: Writer) -> None:
    h, d = int(writer.one_of(_HEADS)), int(writer.one_of(_WIDTHS))
    x = _tokens(writer, 3 * h * d)
    qkv = writer.step(f"{x}.unflatten(-1, (3, {h}, {d})).permute(2, 0, 3, 1, 4)")
    scores = writer.step(f"{qkv}[0] @ {qkv}[1].transpose(-1, -2) * {d**-0.5}")
    if writer.chance(0.5) and scores:
        t = writer.known[scores].shape[-1]
        positions = f"torch.arange({t}, device={x}.device)"
        scores = writer.step(f"{scores}.masked_fill({positions}[:, None] < {positions}, float('-inf'))")
    out = writer.step(f"{scores}.softmax(-1) @ {qkv}[2]")
    writer.step(f"{out}.transpose(1, 2)")
    if writer.chance(0.6):
        writer.step(f"{out}.transpose(1, 2).flatten(2)")


def _gated(writer: Writer) -> None:
    c, inner = int(writer.one_of(_WIDTHS)) * 2, int(writer.one_of(_WIDTHS))
    shapes = ((int(writer.one_of(_LENGTHS)), c), (inner, c), (inner, c), (c, inner))
    x, gate, up, down = [_new(writer, *shape) for shape in shapes]
    made = writer.step(f"F.silu(F.linear({x}, {gate})) * F.linear({x}, {up})")
    writer.step(f"{x} + F.linear({made}, {down})")


def _embedded(writer: Writer) -> None:
    entries, c = int(writer.one_of(_ENTRIES)), int(writer.one_of(_WIDTHS))
    b, t = int(writer.one_of(_BATCHES)), int(writer.one_of(_LENGTHS))
    table, at, places = _new(writer, entries, c), _whole_numbers(writer, entries, b, t), _new(writer, 40, c)
    h = writer.step(f"F.embedding({at}, {table}) + {places}[:{t}]")
    normed = writer.step(f"{h} * ({h}.float().square().mean(-1, keepdim=True) + 1e-3).rsqrt().to({h}.dtype)")
    if writer.chance(0.6):
        writer.step(f"F.linear({normed}, {table})")


def _rotated(writer: Writer) -> None:
    half = int(writer.one_of(_WIDTHS))
    x = _new(writer, int(writer.one_of(_BATCHES)), int(writer.one_of(_HEADS)), int(writer.one_of(_LENGTHS)), 2 * half)
    t = writer.known[x].shape[2]
    angles = _new(writer, t, 2 * half)
    turned = writer.step(f"torch.cat((-{x}[..., {half}:], {x}[..., :{half}]), -1)")
    writer.step(f"{x} * {angles}.cos() + {turned} * {angles}.sin()")


def _of_images(writer: Writer) -> None:
    c, h, w = int(writer.one_of(_CHANNELS)), int(writer.one_of(_SIDES)), int(writer.one_of(_SIDES))
    x = _new(writer, int(writer.one_of(_BATCHES)), c, h, w)
    match int(writer.rng.integers(4)):
        case 0:
            scale, shift = _new(writer, c), _new(writer, c)
            writer.step(f"F.batch_norm({x}, None, None, {scale}, {shift}, training=True)")
        case 1:
            writer.step(f"{x} * {x}.mean((2, 3), keepdim=True).sigmoid()")
        case 2:
            writer.step(f"{x}.flatten(2).transpose(1, 2) @ {_new(writer, c, int(writer.one_of(_WIDTHS)))}")
        case _:
            writer.step(f"F.adaptive_avg_pool2d({x}, 1).flatten(1)")


def _loss(writer: Writer) -> None:
    entries = int(writer.one_of(_ENTRIES))
    h = _tokens(writer, entries)
    b, t, _ = writer.known[h].shape
    wanted = _whole_numbers(writer, entries, b, t)
    kind = writer.one_of(("none", "mean", "sum"))
    writer.step(f"F.cross_entropy({h}.view(-1, {entries}) * 0.5, {wanted}.view(-1), reduction='{kind}')")


def _cached(writer: Writer) -> None:
    """Keys of before and a new one, of which all are returned, and what one query makes of them."""
    b, h, d = (int(writer.one_of(sizes)) for sizes in (_BATCHES, _HEADS, _WIDTHS))
    cache, new = _new(writer, b, h, int(writer.one_of(_LENGTHS)), d), _new(writer, b, h, 1, d)
    keys = writer.step(f"torch.cat(({cache}, {new}), 2)")
    writer.step(f"({new} @ {keys}.mT).softmax(-1) @ {keys}")


def _pooled(writer: Writer) -> None:
    x = _tokens(writer, int(writer.one_of(_WIDTHS)))
    kept: Tensor = writer.known[x]
    if writer.chance(0.5):
        writer.step(f"{x}[:, 0]")
    mask = writer.given(torch.from_numpy(writer.rng.random(tuple(kept.shape[:2])) < 0.7))
    writer.step(f"({x} * {mask}[..., None]).sum(1) / {mask}.sum(1, keepdim=True).clamp(min=1)")
