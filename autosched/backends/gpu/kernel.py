"""Launch data of a compiled CUDA kernel. Travels as JSON from the compile worker to the launcher."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Window:
    """Corners and steps of an im2col descriptor, for the dimensions of an image, outermost first.

    Corners are relative to the first and to the last element.
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True)
class TensorMap:
    """A tensor descriptor that a kernel takes: a map of a buffer with tiles of `box` elements.

    `shape` and `strides` in elements, the last stride being 1; `swizzle`: the driver's CUtensorMapSwizzle, by number.
    The kernel's parameters are the map itself, 128 bytes by value, and, with `sizes_follow` (Triton's), the shape, 32
    bits each, then the strides, 64 bits each. With a `window` it is an im2col map, of images, their dimensions and
    channels, and its box is pixels and channels.
    """

    buffer: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    sizes_follow: bool = True
    window: Window | None = None


@dataclass(frozen=True)
class CudaKernel:
    """One kernel of a program.

    `arguments` names the buffers whose addresses are passed, in order; after them come the tensor `maps`. `programs`
    blocks (clusters of `num_ctas` blocks) are launched along x; `shared_bytes` is dynamic shared memory. After all of
    these come `hidden_parameters` pointers: the first to `scratch_bytes` of memory for each block, the others null. A
    `dependent` kernel is launched while the one before it runs; one that `waits` for that by itself may be.
    """

    name: str
    arguments: tuple[str, ...]
    programs: int
    num_warps: int
    num_ctas: int
    shared_bytes: int
    scratch_bytes: int
    hidden_parameters: int
    maps: tuple[TensorMap, ...] = ()
    dependent: bool = False
    waits: bool = False


def kernels_to_json(kernels: Sequence[CudaKernel]) -> str:
    return json.dumps([dataclasses.asdict(k) for k in kernels])


def kernels_from_json(text: str) -> tuple[CudaKernel, ...]:
    return tuple(_kernel(data) for data in json.loads(text))


def _kernel(data: dict[str, Any]) -> CudaKernel:
    return CudaKernel(**{**data, "arguments": tuple(data["arguments"]), "maps": tuple(map(_map, data["maps"]))})


def _map(data: dict[str, Any]) -> TensorMap:
    tuples = {name: tuple(data[name]) for name in ("shape", "strides", "box")}
    window = data["window"] and Window(**{name: tuple(of) for name, of in data["window"].items()})
    return TensorMap(
        data["buffer"],
        data["dtype"],
        swizzle=data["swizzle"],
        sizes_follow=data["sizes_follow"],
        window=window,
        **tuples,
    )
