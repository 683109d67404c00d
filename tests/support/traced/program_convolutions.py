"""Convolutions in random programs, of every kind, with what goes before and after them in models of images."""

from __future__ import annotations

from program_writer import Writer, drawn, partner, pick

# Of layers that are kept small. Several of one number make it likelier.
_BATCHES, _CHANNELS, _SIDES = (1, 2, 3), (1, 2, 3, 4, 6, 8), (1, 2, 3, 5, 7, 8, 9)
_TAPS, _STRIDES, _SPACINGS, _PADDINGS = (1, 1, 2, 3, 3, 3, 4, 5), (1, 1, 1, 2, 3), (1, 1, 1, 2, 3), (0, 1, 1, 2, 3)
_BEFORE = (
    "F.relu({x})", "F.gelu({x})", "{x} * 0.5", "{x} + {y}", "F.silu({x})", "{x}[:, :, 1:]", "{x}[..., ::2]",
    "F.batch_norm({x}, {m}.detach(), {v}.detach().abs() + 0.1)", "F.interpolate({x}, scale_factor=2)",
    "F.pad({x}, (1, 2))", "{x}[..., 1:].abs()",
    "F.pad({x}, (1, 1), mode='reflect')", "F.pad({x}, (2, 1, 1, 1), mode='reflect')", "F.pad({x}, (1, 0), value=2.0)",
    "F.pad({x}, (1, 1, 1, 1), mode='replicate')", "F.pixel_unshuffle({x}, 2)", "torch.cat(({x}, {x}.relu()), 1)",
    "{x}.to(memory_format=torch.channels_last)", "{x}.flip(-1)", "{x}.contiguous()", "{x}.transpose(-1, -2)",
)  # fmt: skip
_AFTER = (
    "F.relu({x})", "F.gelu({x})", "F.silu({x})", "F.relu6({x})", "F.hardswish({x})", "{x} + {y}", "F.relu({x} + {y})",
    "F.batch_norm({x}, {m}.detach(), {v}.detach().abs() + 0.1)",
    "F.relu(F.batch_norm({x}, {m}.detach(), {v}.detach().abs() + 0.1, {m}, {v}))",
    "F.batch_norm({x}, None, None, {m}, {v}, training=True)", "F.instance_norm({x})", "F.group_norm({x}, 1)",
    "F.pixel_shuffle({x}, 2)", "F.interpolate({x}, scale_factor=2)", "F.channel_shuffle({x}, 2)",
    "F.interpolate({x}, scale_factor=2, mode='bilinear')", "F.max_pool{r}d({x}, 2)", "F.max_pool{r}d({x}, 3, 2, 1)",
    "F.avg_pool{r}d({x}, 2)", "F.avg_pool{r}d({x}, 3, 1, 1)", "F.adaptive_avg_pool{r}d({x}, 1)",
    "torch.cat(({x}, {x}.relu()), 1)", "torch.cat(({x}, {x} * 2), -1)", "{x}.chunk(2, 1)[0]", "{x}[..., :1]",
    "{x} * {x}.mean(-1, True).sigmoid()", "{x}.flatten(2).transpose(1, 2)", "{x}.flatten(1)", "{x}.mean((-1, -2))",
    "{x}.amax(1)", "{x}.softmax(1)", "{x} * {m}.view(-1, *(1,) * {r})", "{x}.transpose(1, -1)", "{x}.sum()",
    "{x}.view({x}.shape[0], -1)", "{x}.clone()", "{x}.to(memory_format=torch.channels_last)",
)  # fmt: skip


def convolved(writer: Writer) -> None:
    """A convolution of an image that there is, or of a new one, and perhaps what goes before and after it."""
    if len(writer.inputs) > 5:
        return
    name = _image(writer)
    if writer.chance(0.4):
        name = _surrounding(writer, name, _BEFORE) or name
    made = _convolution(writer, name)
    while made and writer.chance(0.6):
        made = _surrounding(writer, made, _AFTER)


def _image(writer: Writer) -> str:
    name = pick(writer, writer.floats)
    if name and 3 <= writer.known[name].ndim <= 5 and writer.chance(0.7):
        return name
    sides = tuple(int(writer.one_of(_SIDES)) for _ in range(int(writer.one_of((1, 2, 2, 2, 3)))))
    return writer.given(drawn(writer, (int(writer.one_of(_BATCHES)), int(writer.one_of(_CHANNELS)), *sides)))


def _surrounding(writer: Writer, name: str, choices: tuple[str, ...]) -> str | None:
    x, text = writer.known[name], str(writer.one_of(choices))
    if x.dtype != writer.floats or x.ndim < 3 or len(writer.inputs) > 7:
        return None
    m, v = (writer.given(drawn(writer, (x.shape[1],))) if part in text else "" for part in ("{m}", "{v}"))
    y = partner(writer, name) if "{y}" in text else ""
    return writer.step(text.format(x=name, y=y, m=m, v=v, r=x.ndim - 2))


def _convolution(writer: Writer, name: str) -> str | None:
    x = writer.known[name]
    rank, channels = x.ndim - 2, x.shape[1]
    if not 1 <= rank <= 3:
        return None
    transposed = writer.chance(0.3)
    groups = int(writer.one_of([g for g in (1, 1, 1, 1, 2, 3, channels, channels) if channels % g == 0]))
    filters = int(writer.one_of((1, 2, 3, 4))) if groups > 1 else int(writer.one_of(_CHANNELS))
    taps = [int(writer.one_of(_TAPS)) for _ in range(rank)]
    inner = (channels, filters) if transposed else (groups * filters, channels // groups)
    weight = writer.given(drawn(writer, (*inner, *taps)))
    bias = writer.given(drawn(writer, (groups * filters,))) if writer.chance(0.5) else "None"
    stride, spacing = ([int(writer.one_of(c)) for _ in range(rank)] for c in (_STRIDES, _SPACINGS))
    padding = str([int(writer.one_of(_PADDINGS)) for _ in range(rank)])
    options = f"stride={stride}, dilation={spacing}, groups={groups}"
    if transposed:
        more = [int(writer.rng.integers(max(each))) for each in zip(stride, spacing, strict=True)]
        options = f"{options}, padding={padding}, output_padding={more}"
        return writer.step(f"F.conv_transpose{rank}d({name}, {weight}, {bias}, {options})")
    padding = str(writer.one_of((padding, padding, padding, "'same'", "'valid'")))
    return writer.step(f"F.conv{rank}d({name}, {weight}, {bias}, {options}, padding={padding})")
