# matmul m=1 n=6144 k=4096 layout=nt bfloat16: one Triton kernel, by autosched.
#
# Needs PyTorch and Triton 3.6 to 3.9. Before its first call it compares its results with PyTorch's in float64.
# Run as a script, it does that too, and times itself; without a GPU, that needs TRITON_INTERPRET=1.
#
# workload matmul m=1 n=6144 k=4096 layout=nt bfloat16
#   input a[1, 4096] bfloat16
#   input b[6144, 4096] bfloat16
#   out[m, n] = sum over k of mul(a[m, k], b[n, k])  : bfloat16
#
# Tuned on NVIDIA H200: 16.8 µs with cold caches (python 3.12.3, torch 2.11.0+cu130, triton 3.6.0, nvrtc 13.0.88, nvrtc12 12.6.85, cuda 13.0, driver 580.159.04; generator 17d72c1e6bc6).
#
# thin_dot_gpu thin=1x1 wide=6144x1 k=2x2048 reduce=after_loop unroll=2 stages=1 split_k=1 order=split_first eviction=evict_first warps=8
# kernel matmul: grid n.0 in 6144, m.0 in 1  [warps 8, stages 1]
#   acc_0: (n 1, k 2048) float32 = 0
#   for k.0 in 1:
#     large: (n 1, k 2048) bfloat16 = load b[n.0 : +1, k.0*4096 : +2048]  (evict_first)
#     large2: (n 1, k 2048) bfloat16 = load b[n.0 : +1, k.0*4096 + 2048 : +2048]  (evict_first)
#     row: (k 2048) bfloat16 = load a[m.0, k.0*4096 : +2048]
#     product: (n 1, k 2048) float32 = mul(large, row)
#     acc_0: (n 1, k 2048) float32 = add(acc_0, product)
#     row2: (k 2048) bfloat16 = load a[m.0, k.0*4096 + 2048 : +2048]
#     product2: (n 1, k 2048) float32 = mul(large2, row2)
#     acc_0: (n 1, k 2048) float32 = add(acc_0, product2)
#   sum_0: (n 1) float32 = sum of acc_0 over k
#   store out[m.0, n.0 : +1] = sum_0

import functools
import math
import sys

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(a_ptr, b_ptr, out_ptr):
    pid = tl.program_id(0)
    n_0 = pid
    offs_n = n_0 + tl.arange(0, 1)
    offs_k = tl.arange(0, 2048)
    offs_k_1 = 2048 + tl.arange(0, 2048)
    acc_0 = tl.full([1, 2048], 0.0, tl.float32)
    large = tl.load(b_ptr + offs_n[:, None] * 4096 + offs_k[None, :], eviction_policy="evict_first")
    large2 = tl.load(b_ptr + offs_n[:, None] * 4096 + offs_k_1[None, :], eviction_policy="evict_first")
    row = tl.load(a_ptr + offs_k)
    product = large.to(tl.float32) * row.to(tl.float32)[None, :]
    acc_0 = acc_0 + product
    row2 = tl.load(a_ptr + offs_k_1)
    product2 = large2.to(tl.float32) * row2.to(tl.float32)[None, :]
    acc_0 = acc_0 + product2
    sum_0 = tl.sum(acc_0, axis=1)
    tl.store(out_ptr + offs_n, sum_0.to(tl.bfloat16))


def _check(name, tensor, shape, strides, dtype, device):
    """Raise ValueError unless the kernels, which have shapes and strides built in, can take the tensor."""
    if tuple(tensor.shape) != shape or tensor.dtype != dtype or tensor.device != device:
        got = f"{list(tensor.shape)} {tensor.dtype} on {tensor.device}"
        raise ValueError(f"{name}: got {got}; expected {list(shape)} {dtype} on {device}")
    if any(size > 1 and got != want for size, got, want in zip(shape, tensor.stride(), strides)):
        raise ValueError(f"{name}: strides {tensor.stride()}; expected {strides}")
    if tensor.data_ptr() % 16:
        raise ValueError(f"{name} begins at {tensor.data_ptr():#x}; expected a multiple of 16, as of {name}.clone()")


def launch_matmul(a, b, empty):
    out = empty((1, 6144), (6144, 1), dtype=torch.bfloat16, device=a.device)
    with torch.cuda.device_of(a):
        matmul_kernel[(6144,)](a, b, out, num_warps=8, num_stages=1)
    return out


def matmul(a, b):
    """out[1, 6144] bfloat16 of a[1, 4096] bfloat16, b[6144, 4096] bfloat16."""
    _check("a", a, (1, 4096), (4096, 1), torch.bfloat16, a.device)
    _check("b", b, (6144, 4096), (4096, 1), torch.bfloat16, a.device)
    _checked(a.device)
    return launch_matmul(a, b, torch.empty_strided)


def _reference(a, b):
    """The same by PyTorch alone, computed in the element type of the arguments."""
    # out[m, n] = sum over k of mul(a[m, k], b[n, k])
    out = torch.einsum("mk,nk->mn", a, b)
    return out


def _random(shape, strides, dtype, generator, empty, integers=(-8, 9)):
    """Standard normal numbers, or integers from the first of `integers` below the second."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))
    if dtype.is_floating_point:
        drawn = torch.randn(span, generator=generator, device=generator.device)
    else:
        drawn = torch.randint(*integers, (span,), generator=generator, device=generator.device)
    tensor = empty(shape, strides, dtype=dtype, device=generator.device)
    tensor.as_strided((span,), (1,)).copy_(drawn)
    return tensor


def _inputs(generator, empty):
    return [
        _random((1, 4096), (4096, 1), torch.bfloat16, generator, empty),  # a
        _random((6144, 4096), (4096, 1), torch.bfloat16, generator, empty),  # b
    ]


# Float32 sums of at most 4096 terms, in whatever order, are off by the root of that many roundings, 2^-24 of the
# largest each; twice that is allowed.
_SUMS = 7.6e-06


def _error(got, exact, usual):
    """The largest error as a fraction of what is allowed.

    That is 4 times the largest error of PyTorch in float32, one rounding to the type of the result, and `_SUMS` of the
    largest value. Integers are compared where PyTorch has the same ones in float64.
    """
    dtype = got.dtype
    if not dtype.is_floating_point:
        exact, usual = exact.to(dtype), usual.to(dtype)
        return 0.0 if bool(((got == usual) | (usual != exact)).all()) else math.inf
    got, exact, usual = got.double(), exact.double(), usual.double()
    same = (got == exact) | (got == usual) | (got.isnan() & exact.isnan())
    kind = torch.finfo(dtype)
    if dtype.itemsize == 1:
        exact, usual = exact.clamp(kind.min, kind.max), usual.clamp(kind.min, kind.max)
    finite = exact.isfinite() & usual.isfinite()
    if not bool(finite.any()):
        return 0.0 if bool(same.all()) else math.inf
    usual_error = (usual - exact).abs()[finite].max()
    allowed = 4 * usual_error + kind.eps * exact.abs() + _SUMS * exact[finite].abs().max() + kind.tiny
    errors = torch.where(finite, (got - exact).abs() / allowed, torch.where(same, 0.0, math.inf))
    return errors.nan_to_num(math.inf, math.inf).max().item()


# Bytes before and after every tensor while the kernels are checked.
_BAND = 2**16


class _Guards:
    """Allocates like torch.empty_strided, between two bands, and fills all of it with what kernels do not compute."""

    def __init__(self):
        self.memory = []
        self.bands = []

    def __call__(self, shape, strides, dtype, device):
        size = (1 + sum((size - 1) * stride for size, stride in zip(shape, strides))) * dtype.itemsize
        # NaN in every floating-point type.
        fill = 0xFF if dtype.is_floating_point else 0x5A
        memory = torch.full((size + 2 * _BAND,), fill, dtype=torch.uint8, device=device)
        self.memory.append(memory)
        self.bands += [(memory[:_BAND], fill), (memory[-_BAND:], fill)]
        return memory[_BAND:-_BAND].view(dtype).as_strided(shape, strides)

    def damaged(self):
        """Whether a band was written to."""
        return any(bool((band != fill).any()) for band, fill in self.bands)


def _worst(device):
    """What the kernels make of random inputs: the largest error as a fraction of what is allowed.

    Infinite where they leave a part of a result unwritten, or write to their inputs or beside any tensor.
    """
    guards = _Guards()
    inputs = _inputs(torch.Generator(device).manual_seed(0), guards)
    before = [memory.clone() for memory in guards.memory]
    got = launch_matmul(*inputs, guards)
    if guards.damaged() or not all(map(torch.equal, guards.memory, before)):
        return math.inf
    got = [got]
    exact = [_reference(*[x.double() for x in inputs])]
    usual = [_reference(*[x.float() for x in inputs])]
    return max(_error(*tensors) for tensors in zip(got, exact, usual))


@functools.cache
def _checked(device):
    """Raise RuntimeError unless the kernels are right on this device: asked once, before the first call there."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("matmul checks its kernels at its first call; expected one before a graph is captured")
    worst = _worst(device)
    if worst > 1:
        raise RuntimeError(
            f"matmul is wrong here: on random inputs its largest error is {worst:.2g} of what is allowed "
            "(inf: something was left unwritten, or written elsewhere); nothing was computed, tune it again"
        )


def _latency_us(call):
    """What a call takes amid others, caches hot. In a CUDA graph, where no launch waits for Python."""
    call()
    torch.cuda.synchronize()
    graph, calls = torch.cuda.CUDAGraph(), 20
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    graph.replay()
    start.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e3 / calls


def _self_test():
    """Print one line; whether the results are right."""
    # On a CPU with TRITON_INTERPRET=1 only.
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    worst = _worst(device)
    verdict = "right" if worst <= 1 else "WRONG"
    label = "matmul m=1 n=6144 k=4096 layout=nt bfloat16"
    line = f"{label}: {verdict}, the largest error is {worst:.2g} of what is allowed"
    if device.type == "cuda" and worst <= 1:
        inputs = _inputs(torch.Generator(device).manual_seed(0), torch.empty_strided)
        took = _latency_us(lambda: matmul(*inputs))
        line += f"; {took:.1f} us with hot caches on {torch.cuda.get_device_name()}"
        line += " (tuned to 16.8 us with cold caches on NVIDIA H200)"
    print(line)
    return worst <= 1


if __name__ == "__main__":
    sys.exit(0 if _self_test() else 1)
