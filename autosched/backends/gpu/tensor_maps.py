"""Tensor maps: descriptors as kernel parameters, made by the driver for every address at which they are used.

A map contains the address of its tensor, so a call on other tensors needs other maps. Making one takes the driver about
as long as a launch, and addresses recur: PyTorch's allocator hands out few. So maps are cached by address. None is ever
changed; a call that has one can use it concurrently with other threads.
"""

from __future__ import annotations

import ctypes
from typing import Any

from cuda.bindings import driver

from autosched.backends.backend import LoadError
from autosched.backends.gpu.kernel import TensorMap
from search_spaces.workloads.dtypes import dtype

_DATA_TYPES = driver.CUtensorMapDataType
# Data is only moved, and zeros fill the outside: types of 8 bits, for which there are no numbers, go as bytes.
_TYPES = {
    "float32": _DATA_TYPES.CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
    "float16": _DATA_TYPES.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    "bfloat16": _DATA_TYPES.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    "int32": _DATA_TYPES.CU_TENSOR_MAP_DATA_TYPE_INT32,
    "int64": _DATA_TYPES.CU_TENSOR_MAP_DATA_TYPE_INT64,
    "int8": _DATA_TYPES.CU_TENSOR_MAP_DATA_TYPE_UINT8,
    "int16": _DATA_TYPES.CU_TENSOR_MAP_DATA_TYPE_UINT16,
    "uint8": _DATA_TYPES.CU_TENSOR_MAP_DATA_TYPE_UINT8,
    "bool": _DATA_TYPES.CU_TENSOR_MAP_DATA_TYPE_UINT8,
    "float8_e4m3fn": _DATA_TYPES.CU_TENSOR_MAP_DATA_TYPE_UINT8,
    "float8_e5m2": _DATA_TYPES.CU_TENSOR_MAP_DATA_TYPE_UINT8,
}
# A map's size, and the alignment of its address (CUDA driver API, CUtensorMap and cuTensorMapEncodeTiled). The objects
# of cuda.bindings have no such alignment.
_MAP_BYTES = 128
_MAP_ALIGNMENT = 64
# The first version of the driver API with cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col and cuLaunchKernelEx.
_API_VERSION = 12000
# The choice of Triton and CUTLASS: a miss also loads the cache line's neighbours. 256 bytes make products whose rows
# are no whole lines up to 12 % slower on an H200, and none faster; less makes no difference (docs/performance.md).
_PROMOTION = driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B
# Drivers up to this version set a wrong bit in tiled maps of tensors smaller than that, and CUTLASS clears it
# (NVIDIA/cutlass, include/cute/atom/copy_traits_sm90_tma.hpp), but not in im2col maps (copy_traits_sm90_im2col.hpp).
_LAST_WRONG_DRIVER = 13010
_SMALL_BYTES = 128 * 1024
_WRONG_WORD, _WRONG_BIT = 1, 1 << 21
# So many maps of one descriptor are kept, a quarter of a MiB.
_MOST_KEPT = 2048


class EncodedMap:
    """One map in memory of its own, at `address`."""

    def __init__(self) -> None:
        self._memory = (ctypes.c_uint8 * (_MAP_BYTES + _MAP_ALIGNMENT))()
        begin = ctypes.addressof(self._memory)
        self.address = begin + -begin % _MAP_ALIGNMENT


class EncodedMaps:
    """The maps of one descriptor of a kernel."""

    def __init__(self, described: TensorMap) -> None:
        """Of kernels that are loaded in the current context. Raises LoadError when the driver has no tensor maps."""
        rank = len(described.shape)
        size = dtype(described.dtype).bytes
        strides = [stride * size for stride in described.strides]
        # Innermost first; its own stride is not passed.
        self._shape = (ctypes.c_uint64 * rank)(*reversed(described.shape))
        self._strides = (ctypes.c_uint64 * rank)(*reversed(strides[:-1]))
        self._encode, self._tile = _tiled(described) if described.window is None else _windowed(described)
        self._described, self._rank = described, rank
        _, self._context = driver.cuCtxGetCurrent()
        reach = size + sum((n - 1) * stride for n, stride in zip(described.shape, strides, strict=True))
        small = described.window is None and reach < _SMALL_BYTES
        self._wrong_bit = small and driver_version() <= _LAST_WRONG_DRIVER
        self._known: dict[int, EncodedMap] = {}

    def at(self, address: int) -> EncodedMap:
        """The map of the tensor that begins there. Raises RuntimeError when the driver refuses to make one."""
        found = self._known.get(address)
        if found is None:
            found = self._encoded(address)
            if len(self._known) >= _MOST_KEPT:
                # Another dictionary: threads may be reading this one.
                self._known = {}
            self._known[address] = found
        return found

    def _encoded(self, address: int) -> EncodedMap:
        made = EncodedMap()
        status = self._encode_at(address, made)
        if status == driver.CUresult.CUDA_ERROR_INVALID_CONTEXT:
            # A thread that never touched the device has none: give it the one that the kernels were loaded in.
            driver.cuCtxSetCurrent(self._context)
            status = self._encode_at(address, made)
        if status:
            raise RuntimeError(f"{driver.CUresult(status).name}: no tensor map for {self._described} at {address:#x}")
        if self._wrong_bit:
            words = (ctypes.c_uint64 * 2).from_address(made.address)
            words[_WRONG_WORD] &= ~_WRONG_BIT
        return made

    def _encode_at(self, address: int, made: EncodedMap) -> int:
        """The driver's status."""
        status: int = self._encode(
            made.address,
            data_type(self._described.dtype),
            self._rank,
            address,
            self._shape,
            self._strides,
            *self._tile,
            int(driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE),
            self._described.swizzle,
            int(_PROMOTION),
            int(driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        )
        return status


def data_type(name: str) -> int:
    """The driver's CUtensorMapDataType of elements of that type, by number."""
    return int(_TYPES[name])


def _tiled(described: TensorMap) -> tuple[Any, tuple[Any, ...]]:
    """The function that makes tiled maps, and its arguments about the tile."""
    rank, pointer = len(described.box), ctypes.c_void_p
    box, steps = (ctypes.c_uint32 * rank)(*reversed(described.box)), (ctypes.c_uint32 * rank)(*[1] * rank)
    return _function("cuTensorMapEncodeTiled", pointer, pointer), (box, steps)


def _windowed(described: TensorMap) -> tuple[Any, tuple[Any, ...]]:
    """The same of im2col maps: the corners of columns come before those of rows, as CUTLASS passes them."""
    window, rank = described.window, len(described.shape)
    assert window is not None
    pixels, channels = described.box
    corners = ((ctypes.c_int * (rank - 2))(*reversed(x)) for x in (window.lower, window.upper))
    steps = (ctypes.c_uint32 * rank)(1, *reversed(window.steps), 1)
    pointer, number = ctypes.c_void_p, ctypes.c_uint32
    made = _function("cuTensorMapEncodeIm2col", pointer, pointer, number, number, pointer)
    return made, (*corners, channels, pixels, steps)


def _function(name: str, *tile: Any) -> Any:
    """A function of the driver that takes a map in place; `tile`: the types of its parameters about the tile."""
    number, pointer = ctypes.c_int, ctypes.c_void_p
    kinds = (pointer, number, ctypes.c_uint32, pointer, pointer, pointer, *tile, *[number] * 4)
    return ctypes.CFUNCTYPE(number, *kinds)(driver_function(name))


def driver_function(name: str) -> int:
    """The address of a function of the driver. Raises LoadError when it has none of this name."""
    status, address, *_ = driver.cuGetProcAddress(name.encode(), _API_VERSION, 0)
    if status != driver.CUresult.CUDA_SUCCESS or not address:
        raise LoadError(f"the driver has no {name}; expected one of CUDA 12 or newer")
    return int(address)


def driver_version() -> int:
    """The CUDA version of the driver: 13000 for 13.0."""
    status, version = driver.cuDriverGetVersion()
    # An unknown one counts as old: a map is right without the bit, too.
    return int(version) if status == driver.CUresult.CUDA_SUCCESS else 0
