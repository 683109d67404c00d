"""Runs printed CUDA C++ on the CPU: whether it computes the right thing, where there is no GPU.

The C++ compiler of the machine translates the text as it is, with every thread of a block as a fiber, barriers and
shuffles between these, and the few functions of inline PTX replaced by what the instruction set says they do. Nothing
is seen of races between fibers, of alignment, and of what a GPU rounds in other ways.
"""

from __future__ import annotations

import ctypes
import functools
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

import cuda_dots_on_cpu
from autosched.backends.cuda.source import launched, print_module
from autosched.backends.gpu.warps import WARP
from search_spaces import Target, TileProgram

_PRELUDE = r"""
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <ucontext.h>
#define __device__
#define __forceinline__ inline
#define __global__
#define __launch_bounds__(...)
#define __restrict__
#define __builtin_assume(x)
struct Index { int x; };
static Index threadIdx, blockIdx;
static unsigned char memory_shared[1 << 18] __attribute__((aligned(1024)));
static unsigned shared_size;
static bool beyond_shared;
static unsigned char* in_shared(unsigned at, unsigned bytes) {
    beyond_shared |= at + bytes > shared_size;
    return memory_shared + at;
}
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
using std::isnan;
static int min(int a, int b) { return a < b ? a : b; }
static int max(int a, int b) { return a > b ? a : b; }
template <typename A, typename B> static B as(A a) { B b; memcpy(&b, &a, sizeof(b)); return b; }
static float __int_as_float(int x) { return as<int, float>(x); }
static int __float_as_int(float x) { return as<float, int>(x); }
static float __uint_as_float(unsigned x) { return as<unsigned, float>(x); }
static unsigned __float_as_uint(float x) { return as<float, unsigned>(x); }
static double __longlong_as_double(long long x) { return as<long long, double>(x); }
static long long __double_as_longlong(double x) { return as<double, long long>(x); }
static float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static unsigned __cvta_generic_to_shared(void*) { return 0; }
template <typename T> static T __ldcs(const T* p) { return *p; }
template <typename T> static void __stcs(T* p, T v) { *p = v; }
static unsigned atomicCAS(unsigned* p, unsigned seen, unsigned v) {
    unsigned old = *p;
    if (old == seen) *p = v;
    return old;
}
template <typename T> static T atomicAdd(T* p, T v) { T old = *p; *p += v; return old; }

// Fibers: a thread runs until it waits for others.
static const int most = 1024;
static ucontext_t scheduler, fibers[most];
static bool done[most];
static int current, threads, arrived, generation;
static int warp_arrived[32], warp_generation[32];
static unsigned char exchanged[most][16];
static void other() { swapcontext(&fibers[current], &scheduler); }
static void __syncthreads() {
    int mine = generation;
    if (++arrived == threads) { arrived = 0; ++generation; return; }
    while (generation == mine) other();
}
static void __syncwarp() {
    int warp = current / 32, mine = warp_generation[warp];
    if (++warp_arrived[warp] == 32) { warp_arrived[warp] = 0; ++warp_generation[warp]; return; }
    while (warp_generation[warp] == mine) other();
}
template <typename T> static T from_lane(T x, int lane) {
    int self = current;
    memcpy(exchanged[self], &x, sizeof(x));
    __syncwarp();
    T y = x;
    if (lane >= 0 && lane < 32) memcpy(&y, exchanged[self / 32 * 32 + lane], sizeof(y));
    __syncwarp();
    return y;
}
template <typename T> static T __shfl_xor_sync(unsigned, T x, int apart) { return from_lane(x, current % 32 ^ apart); }
template <typename T> static T __shfl_up_sync(unsigned, T x, int by) { return from_lane(x, current % 32 - by); }
template <typename T> static T __shfl_down_sync(unsigned, T x, int by) { return from_lane(x, current % 32 + by); }
template <typename T> static T __shfl_sync(unsigned, T x, int lane) { return from_lane(x, lane); }
static int __popc(unsigned x) { return __builtin_popcount(x); }
static unsigned __ballot_sync(unsigned, bool holds) {
    unsigned all = 0;
    for (int lane = 0; lane < 32; ++lane) all |= unsigned(from_lane(int(holds), lane)) << lane;
    return all;
}
"""

# What functions of inline PTX do, by how they begin.
_EMULATED = {
    "float widened(float16 x)": "{ _Float16 y; memcpy(&y, &x, 2); return float(y); }",
    "void unpack(float* to, const Vector<float16, count>& v)": (
        "{ for (int i = 0; i < count; ++i) to[i * apart] = widened(v.at[i]); }"
    ),
    "void narrowed(float x, float16& y)": "{ _Float16 z = _Float16(x); memcpy(&y, &z, 2); }",
    "void narrowed(float x, bfloat16& y)": (
        "{ unsigned bits = __float_as_uint(x), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;"
        " y.bits = x != x ? bits >> 16 | 0x40 : rounded; }"
    ),
    "float power_of_2(float x)": "{ float y = exp2f(x); return y < 1.17549435e-38f ? 0.0f : y; }",
    "float power_of_2_or_denormal(float x)": "{ return exp2f(x); }",
    "float reciprocal_root(float x)": "{ return 1.0f / sqrtf(x); }",
    "float divided(float x, float y)": "{ return x / y; }",
    "float larger(float x, float y)": "{ return x > y || x != x ? x : y; }",
    "float smaller(float x, float y)": "{ return x < y || x != x ? x : y; }",
    "void add_atomically(float* to, float x)": "{ *to += x; }",
    "void copy_ahead(uint32 to, const void* from, bool inside = true)": (
        "{ begin_copy(to, from, bytes, inside ? bytes : 0); }"
    ),
    "void commit_ahead()": "{ end_group(); }",
    "void wait_ahead()": "{ finish_copies(groups); }",
    **cuda_dots_on_cpu.EMULATED,
}

_DRIVER = r"""
static void** given;
static void enter() { CALL; done[current] = true; swapcontext(&fibers[current], &scheduler); }
extern "C" bool NAME_run(int blocks, int count, int bytes, void** arguments) {
    threads = count;
    shared_size = bytes;
    beyond_shared = false;
    given = arguments;
    static unsigned char* stacks = (unsigned char*)malloc(size_t(most) << 16);
    for (int block = 0; block < blocks; ++block) {
        blockIdx.x = block;
        arrived = generation = 0;
        memset(warp_arrived, 0, sizeof(warp_arrived));
        for (int t = 0; t < threads; ++t) {
            done[t] = false;
            getcontext(&fibers[t]);
            fibers[t].uc_stack.ss_sp = stacks + (size_t(t) << 16);
            fibers[t].uc_stack.ss_size = 1 << 16;
            fibers[t].uc_link = nullptr;
            makecontext(&fibers[t], enter, 0);
        }
        for (int left = threads; left > 0;) {
            left = 0;
            for (int t = 0; t < threads; ++t) {
                if (done[t]) continue;
                current = threadIdx.x = t;
                swapcontext(&scheduler, &fibers[t]);
                if (!done[t]) ++left;
            }
        }
    }
    return beyond_shared;
}
"""


_COMPILE = ("g++", "-std=c++17", "-O1", "-w", "-fwrapv", "-ffp-contract=off", "-fPIC")
_HEADER = "prelude.h"


# The headers of the standard library take a quarter of the time that a kernel's text takes.
@functools.cache
def _compiled_prelude() -> tempfile.TemporaryDirectory[str]:
    """A folder with the prelude, compiled once a process; g++ takes `prelude.h.gch` where it is told `prelude.h`."""
    folder = tempfile.TemporaryDirectory()
    header = Path(folder.name, _HEADER)
    header.write_text(_PRELUDE + cuda_dots_on_cpu.PRELUDE)
    subprocess.run([*_COMPILE, "-x", "c++-header", "-o", f"{header}.gch", header], check=True)
    return folder


class EmulatedProgram:
    """A printed program that runs on tensors of the CPU."""

    def __init__(self, program: TileProgram, target: Target, directory: Path) -> None:
        self._program = program
        self._kernels = launched(program, target)
        source, library = directory / "kernel.cpp", directory / "kernel.so"
        source.write_text(_translated(print_module(program, "", target), [k.name for k in self._kernels]))
        included = Path(_compiled_prelude().name, _HEADER)
        subprocess.run([*_COMPILE, "-shared", "-include", included, "-o", library, source], check=True)
        self._library = ctypes.CDLL(str(library))

    def __call__(self, tensors: Sequence[torch.Tensor]) -> None:
        """Run every kernel on the inputs, then the outputs."""
        rest = iter(tensors)
        buffers = {}
        for b in self._program.buffers:
            dtype = getattr(torch, b.dtype)
            buffers[b.name] = torch.empty(b.span, dtype=dtype) if b.role == "workspace" else next(rest)
        for name in self._program.zeroed:
            buffers[name].zero_()
        for kernel in self._kernels:
            pointers = [buffers[name].data_ptr() for name in kernel.arguments]
            run = getattr(self._library, f"{kernel.name}_run")
            run.restype = ctypes.c_bool
            given = (ctypes.c_void_p * len(pointers))(*pointers)
            beyond = run(kernel.programs, kernel.num_warps * WARP, kernel.shared_bytes, given)
            assert not beyond, f"{kernel.name} accesses shared memory beyond its {kernel.shared_bytes} bytes"


def _translated(text: str, names: Sequence[str]) -> str:
    """The text as C++ for a CPU, with a function that runs each kernel."""
    text = re.sub(r"template <int count, int apart>\n__device__ __forceinline__ void pack\((?:.*\n)*?\}\n", "", text)
    for begin, body in _EMULATED.items():
        head = re.escape(f"__device__ __forceinline__ {begin}")
        text = re.sub(head + r" \{\n(?:.*\n)*?\}\n", lambda _, b=begin, d=body: f"inline {b} {d}\n", text)
    text = re.sub(r"extern __shared__ .* shared\[\];", "unsigned char* shared = memory_shared;", text)
    drivers = []
    for name in names:
        count = len(re.search(rf"\n{name}\((.*?)\) {{\n", text, re.DOTALL).group(1).split(","))
        call = ", ".join(f"Any{{given[{i}]}}" for i in range(count))
        driver = _DRIVER.replace("CALL", f"{name}({call})").replace("NAME", name)
        drivers.append(f"namespace of_{name} {{{driver}}}\n")
    conversion = "struct Any { void* p; template <typename T> operator T*() const { return (T*)p; } };\n"
    return text + conversion + "".join(drivers)
