"""Convolutions in random programs, of every kind, with what goes before and after them in models of images."""

from __future__ import annotations

from program_writer import FLOATS, Writer, drawn, partner, pick

# Of layers that are kept small. Several of one number make it likelier.
_BATCHES, _CHANNELS, _SIDES = (1, 2, 3), (1, 2, 3, 4, 6, 8, 17), (1, 2, 3, 5, 7, 8, 9, 14)
_TAPS, _STRIDES = (1, 1, 2, 3, 3, 3, 4, 5, 7), (1, 1, 1, 1, 2, 2, 3, 5)
_SPACINGS, _PADDINGS = (1, 1, 1, 1, 2, 2, 3, 6), (0, 1, 1, 2, 3, 6)
# {m}, {v}: a number of each channel; {p}, {e}: weights of a pointwise and of a depthwise convolution; {r}: the rank;
# {d}: dimensions of positions; {n}, {s}: odd numbers for each of them; {c}: a pair for each of them.
_ANYWHERE = (
    "F.relu({x})", "F.gelu({x})", "F.silu({x})", "{x} + {y}", "{x}.contiguous()", "{x}.flip(-1)",
    "F.batch_norm({x}, {m}.detach(), {v}.detach().abs() + 0.1)", "torch.cat(({x}, {x}.relu()), 1)",
    "torch.cat(({x}, {x} * 2), -1)", "{x}.to(memory_format=torch.channels_last)", "F.channel_shuffle({x}, 2)",
    "F.pixel_shuffle({x}, 2)", "F.pixel_unshuffle({x}, 2)", "{x}.transpose(-1, -2)", "{x}.movedim(1, -1)",
    "F.interpolate({x}, scale_factor=2)", "F.interpolate({x}, {n})", "F.interpolate({x}, {s}, mode='nearest-exact')",
    "F.interpolate({x}, {n}, mode='{linear}')", "F.interpolate({x}, {n}, mode='{linear}', align_corners=True)",
    "F.interpolate({x}, {s}, mode='area')", "F.interpolate({x}, {s}, mode='bicubic')",
    "F.pad({x}, {c}, mode='reflect')", "F.pad({x}, {c}, mode='replicate')", "F.pad({x}, {c}, mode='circular')",
    "F.pad({x}, {c}, value=2.0)", "F.pad({x}, (-1, 2))", "F.max_pool{r}d({x}, 3, 2, 1)", "F.max_pool{r}d({x}, 2)",
    "F.max_pool{r}d({x}, {s}, 1, ceil_mode=True)", "F.avg_pool{r}d({x}, 2)", "F.avg_pool{r}d({x}, 3, 2, 1)",
    "F.avg_pool{r}d({x}, 3, 2, 1, True, False)", "F.adaptive_avg_pool{r}d({x}, {n})",
    "F.adaptive_max_pool{r}d({x}, {s})", "F.lp_pool{r}d({x}, 2, 2)", "F.conv{r}d({x}, {p})",
    "F.conv{r}d({x}, {e}, padding=1, groups={x}.shape[1])", "{x} * {x}.mean({d}, True).sigmoid()",
    "{x} * F.conv{r}d(F.relu({x}.mean({d}, True)), {p}).sum(1, True).sigmoid()", "F.local_response_norm({x}, 3)",
)  # fmt: skip
_BEFORE = (
    *_ANYWHERE, "{x} * 0.5", "{x}[:, :, 1:]", "{x}[..., ::2]", "{x}[..., 1:].abs()", "F.pad({x}, (1, 2))",
    "F.pad({x}, (1, 0), value=float('-inf'))", "{x}.expand(2, *{x}.shape[1:])",
)  # fmt: skip
_AFTER = (
    *_ANYWHERE, "F.relu6({x})", "F.hardswish({x})", "F.relu({x} + {y})", "F.prelu({x}, {m})",
    "F.relu(F.batch_norm({x}, {m}.detach(), {v}.detach().abs() + 0.1, {m}, {v}))", "F.dropout({x}, 0.5, False)",
    "F.batch_norm({x}, None, None, {m}, {v}, training=True)", "F.instance_norm({x})", "F.group_norm({x}, 1)",
    "F.adaptive_avg_pool{r}d({x}, 1).flatten(1)", "F.max_pool{r}d({x}, 2, return_indices=True)[1]",
    "{x}.chunk(2, 1)[0]", "{x}.chunk(2, 1)[0] * {x}.chunk(2, 1)[1].sigmoid()", "{x}[..., :1]", "{x}.float()",
    "{x} * {x}.mean(-1, True).sigmoid()", "{x}.flatten(2).transpose(1, 2)", "{x}.flatten(1)", "{x}.mean((-1, -2))",
    "{x}.amax(1)", "{x}.softmax(1)", "{x} * {m}.view(-1, *(1,) * {r})", "{x}.transpose(1, -1)", "{x}.sum()",
    "{x}.view({x}.shape[0], -1)", "{x}.clone()", "F.layer_norm({x}.movedim(1, -1), ({x}.shape[1],)).movedim(-1, 1)",
    "F.unfold({x}, 2, padding=1)", "F.normalize({x}, dim=1)", "{x} - {x}.amax({d}, True)",
)  # fmt: skip


def convolved(writer: Writer) -> None:
    """A convolution of an image that there is, or of a new one, and perhaps what goes before and after it."""
    if len(writer.inputs) > 5:
        return
    name = _image(writer)
    while writer.chance(0.4):
        name = _surrounding(writer, name, _BEFORE) or name
    made = _convolution(writer, name)
    while made and writer.chance(0.6):
        made = _surrounding(writer, made, _AFTER)


def _image(writer: Writer) -> str:
    name = pick(writer, *FLOATS)
    if name and 3 <= writer.known[name].ndim <= 5 and writer.chance(0.7):
        return name
    sides = tuple(int(writer.one_of(_SIDES)) for _ in range(int(writer.one_of((1, 2, 2, 2, 3)))))
    shape = (int(writer.one_of(_BATCHES)), int(writer.one_of(_CHANNELS)), *sides)
    return writer.given(drawn(writer, shape, writer.special))


def _surrounding(writer: Writer, name: str, choices: tuple[str, ...]) -> str | None:
    x, text = writer.known[name], str(writer.one_of(choices))
    if x.dtype not in FLOATS or x.ndim < 3 or len(writer.inputs) > 7:
        return None
    rank, channels = x.ndim - 2, x.shape[1]
    made = {"m": (channels,), "v": (channels,)}
    made |= {"p": (int(writer.one_of(_CHANNELS)), channels, *(1,) * rank), "e": (channels, 1, *(3,) * rank)}
    given = {key: writer.given(drawn(writer, shape)) for key, shape in made.items() if f"{{{key}}}" in text}
    given |= {"y": partner(writer, name)} if "{y}" in text else {}
    numbers = {"r": rank, "d": tuple(range(2, x.ndim)), "linear": {1: "linear", 2: "bilinear"}.get(rank, "trilinear")}
    sizes = {key: [int(n) for n in writer.rng.integers(1, most, rank)] for key, most in (("n", 12), ("s", 4))}
    return writer.step(text.format(x=name, c=writer.rng.integers(0, 3, 2 * rank).tolist(), **given, **numbers, **sizes))


def _convolution(writer: Writer, name: str) -> str | None:
    x = writer.known[name]
    rank, channels = x.ndim - 2, x.shape[1]
    if not 1 <= rank <= 3:
        return None
    transposed = writer.chance(0.3)
    groups = int(writer.one_of([g for g in (1, 1, 1, 1, 2, 3, channels, channels) if channels % g == 0]))
    filters = int(writer.one_of((1, 2, 3, 4))) if groups > 1 else int(writer.one_of(_CHANNELS))
    windows = [_window(writer, size, transposed) for size in x.shape[2:]]
    taps, stride, spacing, before = (list(of) for of in zip(*windows, strict=True))
    inner = (channels, filters) if transposed else (groups * filters, channels // groups)
    weight = writer.given(drawn(writer, (*inner, *taps)))
    bias = writer.given(drawn(writer, (groups * filters,))) if writer.chance(0.5) else "None"
    options = f"stride={stride}, dilation={spacing}, groups={groups}"
    if transposed:
        more = [int(writer.rng.integers(max(each))) for each in zip(stride, spacing, strict=True)]
        options = f"{options}, padding={before}, output_padding={more}"
        return writer.step(f"F.conv_transpose{rank}d({name}, {weight}, {bias}, {options})")
    named = "'same'" if max(stride) == 1 else before
    padding = str(writer.one_of((before, before, before, named)))
    return writer.step(f"F.conv{rank}d({name}, {weight}, {bias}, {options}, padding={padding})")


def _window(writer: Writer, size: int, transposed: bool) -> tuple[int, int, int, int]:
    """Taps, stride, dilation and padding along a dimension, which has a window with these."""
    while True:
        taps, stride, spacing, before = (int(writer.one_of(of)) for of in (_TAPS, _STRIDES, _SPACINGS, _PADDINGS))
        reach = (taps - 1) * spacing
        if (size - 1) * stride + reach >= 2 * before if transposed else size + 2 * before > reach:
            return taps, stride, spacing, before
