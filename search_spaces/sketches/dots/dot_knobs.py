"""Knobs of every contraction on dot units: sizes of tiles, and how tiles of a tensor can be moved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from search_spaces.devices.descriptors import DESCRIPTOR_ALIGNMENT_BYTES, why_not_describable, why_not_storable
from search_spaces.devices.target import Target
from search_spaces.schedules.knobs import Knob, KnobValue, Tiling, cover
from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.expression import Access, Expression, accesses
from search_spaces.workloads.workload import Axis, Tensor, Workload

# A dot needs rows of at least 16, and columns of at least 8 (PTX ISA, shapes of mma and wgmma).
TILES = (16, 32, 64, 128, 256)
SHORT_AXIS_TILES = (8, *TILES)
MIN_ROWS = 16
WARPS = (2, 4, 8)
# Tiles along the reduction, and the bytes that their rows may have: two dot instructions at least, up to the sixteen
# that are in flight anyway.
REDUCTION_TILES = (16, 32, 64, 128, 256)
REDUCTION_BYTES = (64, 512)
# The axes of tiles; a program has one index of every other.
_TILED = frozenset({"m", "n", "k"})
# Axes up to here are worth tiles smaller than any other has: the rest of a larger one would be padding.
SHORT_AXIS = 16


def tilings(m: Axis, n: Axis, k: Axis, element_bytes: int) -> tuple[Tiling, Tiling, Tiling]:
    """The knobs m, n and k."""
    least, most = REDUCTION_BYTES
    return (
        _tiling("m", m.extent, SHORT_AXIS_TILES if m.extent <= SHORT_AXIS else TILES, "grid"),
        _tiling("n", n.extent, SHORT_AXIS_TILES if n.extent <= SHORT_AXIS else TILES, "grid"),
        _tiling("k", k.extent, tuple(s for s in REDUCTION_TILES if least <= s * element_bytes <= most), "loop"),
    )


def _tiling(name: str, extent: int, sizes: tuple[int, ...], level: str) -> Tiling:
    # A tile may exceed the extent, but not by a whole smaller tile; the rows of a dot of 8 x 8 have to.
    fitting = [s for s in sizes if s < 2 * extent or s == MIN_ROWS] or [sizes[0]]
    return Tiling(name, extent, (level, "tile"), tuple(cover(extent, (s,)) for s in fitting))


def addressing(tensor: Tensor, target: Target, access: Access | None = None) -> tuple[KnobValue, ...]:
    """How tiles of a tensor can be moved where it lies; `access`: along which axes."""
    describable = target.has_tensor_descriptors and why_not_describable(tensor) is None
    return ("pointer", "descriptor") if describable and not _repeated(tensor, access) else ("pointer",)


def _repeated(tensor: Tensor, access: Access | None) -> bool:
    """Whether the rows or columns of a tile are one in memory: a descriptor has no dimension for them."""
    if access is None:
        return False
    steps = zip(access.index, tensor.effective_strides, strict=True)
    return any(stride == 0 and i.terms[0][0] in _TILED for i, stride in steps)


def store_addressing(tensor: Tensor, target: Target) -> tuple[KnobValue, ...]:
    """How tiles of a tensor can be written."""
    return addressing(tensor, target) if why_not_storable(tensor) is None else ("pointer",)


def addressing_of_all(workload: Workload, moved: Iterable[Access], target: Target) -> tuple[KnobValue, ...]:
    """How tiles of all that is read so can be moved; by pointers where there are none."""
    inputs = {t.name: t for t in workload.inputs}
    ways = {addressing(inputs[a.tensor], target, a) for a in moved if a.tensor in inputs}
    return ("pointer", "descriptor") if ways == {("pointer", "descriptor")} else ("pointer",)


def epilogue_addressing(workload: Workload, epilogue: Expression, target: Target) -> tuple[KnobValue, ...]:
    """How an epilogue over axes m and n reads what has as many elements as the output: a residual, a gate."""
    whole = (x for x in accesses(epilogue) if {"m", "n"} <= {i.terms[0][0] for i in x.index})
    return addressing_of_all(workload, whole, target)


def fastest(loads: Knob) -> KnobValue:
    """Where to start: by descriptor, if that is possible."""
    return "descriptor" if "descriptor" in loads.values else loads.values[-1]


def why_too_narrow(moved: Iterable[tuple[str, str]], extents: Mapping[str, int]) -> str | None:
    """Why descriptors cannot move tiles so long: of each, the axis of its last dimension and the element type."""
    for axis, element in moved:
        if extents[axis] * dtype(element).bytes < DESCRIPTOR_ALIGNMENT_BYTES:
            got = f"{extents[axis]} {element} along {axis}"
            return f"descriptors move rows of {DESCRIPTOR_ALIGNMENT_BYTES} bytes at least, got {got}"
    return None
