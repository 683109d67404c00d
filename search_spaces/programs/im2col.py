"""Im2col descriptors: tiles whose rows are the pixels of images under one filter tap, copied by one instruction.

x: 16 images of 56 rows of 56 columns of 64 channels
load x[m // 3136, m // 56 % 56 + r.0 - 1, m % 56 + s.0 - 1, c.0*32 : +32] else 0         128 positions m from m.0*128

corners    the first tap of a filter is at rows and columns from -1 on, up to 1 before the last ones
start      of the first position: image m // 3136, row m // 56 % 56 - 1, column m % 56 - 1, channel c.0*32
taps       r.0 rows and s.0 columns from there

Positions count columns, then rows, then images, so that a tile may begin and end anywhere, with nothing left out.
Elements outside of the tensor are 0. Any window over 1 to 3 dimensions is read so: strides are steps of a position,
dilations are coefficients of taps. (PTX ISA, "im2col mode"; CUDA driver API, cuTensorMapEncodeIm2col; its corners are
relative to the first and the last element.)
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from search_spaces.devices.features import Descriptors, Im2col
from search_spaces.errors import UnmatchedError
from search_spaces.programs.addressing import Dimension, dimensions
from search_spaces.programs.statements import Load
from search_spaces.programs.tile_program import Buffer
from search_spaces.programs.tiles import Flat
from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.expressions.affine import Affine

# The word of backends whose producers load by such descriptors (`schedules.words`).
IM2COL = "im2col descriptors"


@dataclass(frozen=True)
class Place:
    """A coordinate: `start`, plus `step` times a digit of the first position if it has one."""

    start: Affine
    step: int = 1
    digit: Flat | None = None


@dataclass(frozen=True)
class Line:
    """A dimension of an image of `size` elements, `stride` apart in memory.

    The first tap of a filter is at `count` elements, `step` apart, from `lower` on; this tap is `tap` elements behind.
    """

    size: int
    stride: int
    lower: int
    count: int
    step: int
    digit: Flat | None
    tap: Affine

    @property
    def upper(self) -> int:
        """Distance of the last first tap from the last element."""
        return self.lower + self.step * (self.count - 1) + 1 - self.size


@dataclass(frozen=True)
class Im2colTile:
    """A tile of `pixels` positions of `channels` channels; `lines`: the dimensions of an image, outermost first.

    `shape` and `strides`, in elements, are those of images, lines and channels; `first` is the place of the first
    position in these.
    """

    pixels: int
    channels: int
    lines: tuple[Line, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    first: tuple[Place, ...]

    @property
    def lower(self) -> tuple[int, ...]:
        return tuple(x.lower for x in self.lines)

    @property
    def upper(self) -> tuple[int, ...]:
        return tuple(x.upper for x in self.lines)

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(x.step for x in self.lines)

    @property
    def taps(self) -> tuple[Affine, ...]:
        return tuple(x.tap for x in self.lines)


def why_no_im2col(buffer: Buffer, load: Load, extents: Mapping[str, int], by: Descriptors | None) -> str | None:
    """Reason that no im2col descriptor copies the tile of a load, or None."""
    try:
        im2col_tile(buffer, load, extents, by)
    except UnmatchedError as why:
        return str(why)
    return None


def im2col_tile(buffer: Buffer, load: Load, extents: Mapping[str, int], by: Descriptors | None) -> Im2colTile:
    """The tile of a load, as an im2col descriptor copies it; `extents`: of the variables of the kernel.

    Raises:
        UnmatchedError: the reason that none does.
    """
    if by is None or by.im2col is None:
        refuse("the device has none")
    if load.fill and load.guarded:
        refuse(f"they pad with 0, expected {load.fill:g}")
    found = dimensions(buffer, load.slices, extents)
    if any(d.is_chosen or d.is_clamped or d.slice.skew for d in found):
        refuse("an index is no affine form")
    counted, single = _counted(found), [d for d in found if not d.axis]
    channel, start, single = _channels([d for d in found if d.axis and not d.slice.flat], single)
    images = _images(counted, single)
    lines = [_line(d, extents, by.im2col) for d in (*single, *counted) if d is not images]
    if not 0 < len(lines) <= by.im2col.dimensions:
        refuse(f"{len(lines)} dimensions of an image; expected 1 to {by.im2col.dimensions}")
    bits = by.im2col.offset_bits // len(lines)
    _check_offsets(lines, bits, extents)
    pixels, channels = counted[0].slice.extent or 1, channel.slice.extent or 1
    if pixels > by.im2col.pixels or channels > by.im2col.channels:
        most = f"{by.im2col.pixels} x {by.im2col.channels}"
        refuse(f"a tile of {pixels} positions of {channels} channels; expected at most {most}")
    first = Place(images.slice.start, 1, images.slice.flat) if images else Place(Affine())
    behind = max(x.size * x.stride for x in lines)
    sizes = ((images.size, images.stride) if images else (1, behind), *((x.size, x.stride) for x in lines))
    return Im2colTile(
        pixels,
        channels,
        tuple(lines),
        (*(size for size, _ in sizes), channel.size),
        (*_strides(sizes, dtype(buffer.dtype).bytes, by.alignment_bytes), 1),
        (first, *(Place(Affine(offset=x.lower), x.step, x.digit) for x in lines), Place(start)),
    )


def refuse(reason: str) -> NoReturn:
    raise UnmatchedError(f"no im2col descriptor: {reason}")


def _counted(found: Sequence[Dimension]) -> list[Dimension]:
    """The dimensions along which positions lie, outermost first: the digits of one number, none left out."""
    counted = [(d, d.slice.flat) for d in found if d.slice.flat]
    counted.sort(key=lambda x: -x[1].divisor)
    flats = [flat for _, flat in counted]
    if not flats or flats[-1].divisor != 1 or not all(a.within(b) for a, b in itertools.pairwise(flats)):
        refuse("its positions are no digits of one number")
    return [d for d, _ in counted]


def _channels(along: Sequence[Dimension], single: Sequence[Dimension]) -> tuple[Dimension, Affine, list[Dimension]]:
    """The dimension of neighbours, the start of a tile in it, and the single positions that are no part of it.

    Channels of one group are part of those of all, if tiles divide them: no tile goes on into the next group.
    """
    if len(along) != 1 or along[0].stride != 1 or along[0].slice.step != 1 or along[0].precedes:
        refuse("expected one dimension of neighbours, and positions along others")
    channel, start, rest = along[0], along[0].slice.start, [*single]
    while group := next((d for d in rest if _are_groups(d, channel)), None):
        rest.remove(group)
        start += group.slice.start * channel.size
        channel = replace(channel, size=channel.size * group.size)
    return channel, start, rest


def _are_groups(d: Dimension, channel: Dimension) -> bool:
    """True if the channels of all groups are one dimension, and tiles divide those of a group."""
    whole = channel.size % (channel.slice.extent or 1) == 0 and not channel.exceeds
    return whole and d.stride == channel.size and not d.may_leave


def _images(counted: Sequence[Dimension], single: Sequence[Dimension]) -> Dimension | None:
    """The dimension that has no window: that of the outermost digit, or of a single position; None for one image."""
    outermost = counted[0]
    if not outermost.slice.flat or outermost.slice.flat.size:
        return next((d for d in single if not d.may_leave), None)
    if outermost.slice.step != 1:
        refuse(f"its outermost positions are {outermost.slice.step} apart; expected 1")
    return outermost


def _line(d: Dimension, extents: Mapping[str, int], by: Im2col) -> Line:
    if not 0 < d.slice.step <= by.step:
        refuse(f"positions {d.slice.step} apart; expected 1 to {by.step}")
    lower = d.slice.start.minimum(extents)
    count = d.slice.flat.size if d.slice.flat else 1
    tap = d.slice.start - Affine(offset=lower)
    return Line(d.size, d.stride, lower, count, d.slice.step, d.slice.flat, tap)


def _check_offsets(lines: Sequence[Line], bits: int, extents: Mapping[str, int]) -> None:
    half = 2 ** (bits - 1)
    for line in lines:
        if not (-half <= line.lower < half and -half <= line.upper < half):
            refuse(f"corners {line.lower} and {line.upper}; expected {-half} to {half - 1}")
        if (most := line.tap.maximum(extents)) >= 2**bits:
            refuse(f"taps {most} from the first; expected less than {2**bits}")


def _strides(sizes: Sequence[tuple[int, int]], element_bytes: int, alignment: int) -> tuple[int, ...]:
    """Strides in elements; of a single element, one that is allowed."""
    aligned = max(1, alignment // element_bytes)
    strides = tuple(stride if size > 1 else -(-stride // aligned) * aligned for size, stride in sizes)
    if wrong := next((x for x in strides if x <= 0 or x * element_bytes % alignment), None):
        refuse(f"positions are {wrong * element_bytes} bytes apart; expected multiples of {alignment}")
    return strides
