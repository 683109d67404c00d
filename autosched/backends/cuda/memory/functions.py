"""Device functions that move neighbouring elements between memory and registers at once."""

from __future__ import annotations

from collections.abc import Collection

from autosched.backends.backend import CompileError
from search_spaces.devices.features import BFLOAT16_SUMS, PAIRS, Features

_VECTORS = """\
// What is moved at once.
template <int bytes> struct Words { struct type {}; };  // Of no use, but named where overloads are chosen among.
template <> struct Words<1> { using type = unsigned char; };
template <> struct Words<2> { using type = unsigned short; };
template <> struct Words<4> { using type = unsigned int; };
template <> struct Words<8> { using type = uint2; };
template <> struct Words<16> { using type = uint4; };
template <typename T, int count> union Vector {
    using Type = typename Words<sizeof(T) * count>::type;
    Type words;
    T at[count];
    unsigned int pairs[sizeof(T) * count / 4 + 1];
    __device__ Vector() {}
};
template <int count, int apart, typename T, typename H>
__device__ __forceinline__ void unpack(H* to, const Vector<T, count>& v) {
    #pragma unroll
    for (int i = 0; i < count; ++i) to[i * apart] = widened(v.at[i]);
}
template <int count, int apart, typename T, typename H>
__device__ __forceinline__ void pack(const H* from, Vector<T, count>& v) {
    #pragma unroll
    for (int i = 0; i < count; ++i) narrowed(from[i * apart], v.at[i]);
}
"""
# For bfloat16, the upper half of float32.
_UNPACK_BFLOAT16 = """\
template <int count, int apart>
__device__ __forceinline__ void unpack(float* to, const Vector<bfloat16, count>& v) {
    if constexpr (count == 1) to[0] = widened(v.at[0]);
    #pragma unroll
    for (int i = 0; i + 1 < count; i += 2) {
        to[i * apart] = __uint_as_float(v.pairs[i / 2] << 16);
        to[(i + 1) * apart] = __uint_as_float(v.pairs[i / 2] & 0xffff0000u);
    }
}
"""
# For float16, two by two: otherwise a vector loaded under a condition would be assembled half by half.
_UNPACK_FLOAT16 = """\
template <int count, int apart>
__device__ __forceinline__ void unpack(float* to, const Vector<float16, count>& v) {
    if constexpr (count == 1) to[0] = widened(v.at[0]);
    #pragma unroll
    for (int i = 0; i + 1 < count; i += 2)
        asm("{.reg .f16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high;}"
            : "=f"(to[i * apart]), "=f"(to[(i + 1) * apart]) : "r"(v.pairs[i / 2]));
}
"""
# Two numbers by one instruction (PTX ISA, cvt).
_PACK_PAIRS = """\
template <int count, int apart>
__device__ __forceinline__ void pack(const float* from, Vector<TYPE, count>& v) {
    if constexpr (count == 1) narrowed(from[0], v.at[0]);
    #pragma unroll
    for (int i = 0; i + 1 < count; i += 2)
        asm("cvt.rn.SHORTx2.f32 %0, %1, %2;" : "=r"(v.pairs[i / 2]) : "f"(from[(i + 1) * apart]), "f"(from[i * apart]));
}
"""
_SHORT = {"float16": "f16", "bfloat16": "bf16"}

_LOAD = """\
// Neighbours in memory to registers that are so far apart; where it is not inside, 0 or what is given.
template <int count, int apart, typename T, typename H>
__device__ __forceinline__ void NAME(H* to, const T* from) {
    Vector<T, count> v;
    v.words = WORDS;
    unpack<count, apart>(to, v);
}
template <int count, int apart, typename T, typename H>
__device__ __forceinline__ void NAME(H* to, const T* from, bool inside) {
    Vector<T, count> v;
    v.words = {};
    if (inside) v.words = WORDS;
    unpack<count, apart>(to, v);
}
template <int count, int apart, typename T, typename H>
__device__ __forceinline__ void NAME(H* to, const T* from, bool inside, H otherwise) {
    NAME<count, apart>(to, from, inside);
    #pragma unroll
    for (int i = 0; i < count; ++i) to[i * apart] = inside ? to[i * apart] : otherwise;
}
"""
_WORDS = "*reinterpret_cast<const typename Vector<T, count>::Type*>(from)"
_STREAMED_WORDS = "__ldcs(reinterpret_cast<const typename Vector<T, count>::Type*>(from))"

_STORE = """\
template <int count, int apart, typename T, typename H>
__device__ __forceinline__ void store(T* to, const H* from) {
    Vector<T, count> v;
    pack<count, apart>(from, v);
    *reinterpret_cast<typename Vector<T, count>::Type*>(to) = v.words;
}
"""

_STORE_STREAMING = """\
template <int count, int apart, typename T, typename H>
__device__ __forceinline__ void store_streaming(T* to, const H* from) {
    Vector<T, count> v;
    pack<count, apart>(from, v);
    __stcs(reinterpret_cast<typename Vector<T, count>::Type*>(to), v.words);
}
"""

_TEXTS = {
    "load": _LOAD.replace("NAME", "load").replace("WORDS", _WORDS),
    "load_streaming": _LOAD.replace("NAME", "load_streaming").replace("WORDS", _STREAMED_WORDS),
    "store": _STORE,
    "store_streaming": _STORE_STREAMING,
}

# PTX ISA, cp.async: elements outside become 0.
_AHEAD = """\
template <int bytes>
__device__ __forceinline__ void copy_ahead(uint32 to, const void* from, bool inside = true) {
    if constexpr (bytes == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                     ::"r"(to), "l"(from), "n"(bytes), "r"(inside ? bytes : 0) : "memory");
}
__device__ __forceinline__ void commit_ahead() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int groups>
__device__ __forceinline__ void wait_ahead() {
    asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}
"""

# Of an iteration's number in such a list.
LISTED_BYTES = 4
_LISTED = """\
// The numbers of marked iterations, in order, and how many these are: one warp writes down what all count.
template <typename T>
__device__ __forceinline__ int list_marked(const T* marks, int first, int end, int* listed) {
    const int lane = threadIdx.x % 32;
    int count = 0;
    for (int begin = first; begin < end; begin += 32) {
        const bool marked = begin + lane < end && widened(marks[begin + lane]) != 0;
        const uint32 all = __ballot_sync(0xffffffffu, marked);
        if (marked && threadIdx.x < 32) listed[count + __popc(all & ((1u << lane) - 1))] = begin + lane;
        count += __popc(all);
    }
    return count;
}
"""

_ADDED = {
    "float32": """\
__device__ __forceinline__ void add_atomically(float* to, float x) {
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}
""",
    "float16": """\
__device__ __forceinline__ void add_atomically(float16* to, float x) {
    float16 y;
    narrowed(x, y);
    asm volatile("red.relaxed.gpu.global.add.noftz.f16 [%0], %1;" ::"l"(to), "h"(y.bits) : "memory");
}
""",
    "bfloat16": """\
__device__ __forceinline__ void add_atomically(bfloat16* to, float x) {
    bfloat16 y;
    narrowed(x, y);
    asm volatile("red.relaxed.gpu.global.add.noftz.bf16 [%0], %1;" ::"l"(to), "h"(y.bits) : "memory");
}
""",
    "int32": """\
__device__ __forceinline__ void add_atomically(int* to, int x) { atomicAdd(to, x); }
""",
    "int64": """\
__device__ __forceinline__ void add_atomically(int64* to, int64 x) {
    atomicAdd(reinterpret_cast<unsigned long long*>(to), (unsigned long long)x);
}
""",
}
# On a device without atomic sums of bfloat16: compare-and-swap of the word that it is half of.
_ADDED_BY_WORDS = """\
__device__ __forceinline__ void add_atomically(bfloat16* to, float x) {
    unsigned int* const word = reinterpret_cast<unsigned int*>(reinterpret_cast<uint64>(to) & ~uint64(3));
    const int shift = reinterpret_cast<uint64>(to) % 4 * 8;
    bfloat16 added, sum;
    narrowed(x, added);
    for (unsigned int seen = *word, found;; seen = found) {
        sum.bits = (unsigned short)(seen >> shift);
        narrowed(widened(sum) + widened(added), sum);
        found = atomicCAS(word, seen, (seen & ~(0xffffu << shift)) | uint32(sum.bits) << shift);
        if (found == seen) return;
    }
}
"""


def _packing(name: str) -> str:
    return _PACK_PAIRS.replace("TYPE", name).replace("SHORT", _SHORT[name])


def definitions(text: str, moved: Collection[str], added: Collection[str], features: Features) -> list[str]:
    """The functions that this text uses.

    `moved`: the element types that it moves; `added`: those of buffers that it adds to.

    Raises:
        CompileError: no instruction adds to elements of such a type.
    """
    for name in added:
        if name not in _ADDED:
            raise CompileError(f"store to {name}: nothing is added to it in memory; expected one of {sorted(_ADDED)}")
    pairs = features.has(PAIRS)
    functions = _ADDED if features.has(BFLOAT16_SUMS) else {**_ADDED, "bfloat16": _ADDED_BY_WORDS}
    return [
        _VECTORS,
        *([_UNPACK_BFLOAT16] if "bfloat16" in moved else []),
        *([_UNPACK_FLOAT16] if "float16" in moved and not pairs else []),
        *(_packing(name) for name in _SHORT if name in moved and pairs),
        *(function for name, function in _TEXTS.items() if f"{name}<" in text),
        *([_AHEAD] if "copy_ahead<" in text else []),
        *([_LISTED] if "list_marked(" in text else []),
        *(function for name, function in functions.items() if name in added),
    ]
