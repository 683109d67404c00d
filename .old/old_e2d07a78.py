# linear_recurrence_permute_3_stored 4096x4096 float32: one Triton kernel, by autosched.
#
# Needs PyTorch and Triton 3.6 to 3.9. Before its first call it compares its results with PyTorch's in float64.
# Run as a script, it does that too, and times itself; without a GPU, that needs TRITON_INTERPRET=1.
#
# workload linear_recurrence_permute_3_stored 4096x4096 float32
#   input x0[4096, 4096] float32
#   input x1[4096, 4096] float32
#   out[d0, d1] = scan along d1 with s1 by add(mul(left[0], right[1]), right[0]) of x1[d0, d1]  : float32
#   s1[d0, d1] = scan along d1 with out by mul(left[1], right[1]) of div(1, add(1, exp(neg(x0[d0, d1]))))  : float32
#
# Tuned on NVIDIA H200: 53.1 µs with cold caches (python 3.12.3, torch 2.11.0+cu130, triton 3.6.0, cuda 13.0, driver 580.159.04; generator 1d3a2852dda0).
#
# row_whole rows=4096x1 warps=4 persistent=False streaming=False
# kernel linear_recurrence_permute_3_stored: grid r.0 in 4096  [warps 4, stages 1]
#   x1: (r 1, c 4096) float32 = load x1[r.0 : +1, 0 : +4096]
#   x0: (r 1, c 4096) float32 = load x0[r.0 : +1, 0 : +4096]
#   t: (r 1, c 4096) float32 = neg(x0)
#   t2: (r 1, c 4096) float32 = exp(t)
#   t3: (r 1, c 4096) float32 = add(1, t2)
#   s1_each: (r 1, c 4096) float32 = div(1, t3)
#   out: (r 1, c 4096) float32, s1 = scan of x1, s1_each along c by add(mul(out_left, s1_right), out_right), mul(s1_left, s1_right)
#   store out[r.0 : +1, 0 : +4096] = out

import functools
import math
import sys

import torch
import triton
import triton.language as tl


@triton.jit
def _div_by_sum(a, b):
    # The hardware's root of a number that is positive and not denormal; its square may be denormal.
    root = tl.rsqrt(tl.cast(b, tl.float32))
    return a * (root * root)


@triton.jit
def _linear_recurrence_permute_3_stored_kernel_out(out_left, s1_left, out_right, s1_right):
    t4 = out_left * s1_right
    out_joined = t4 + out_right
    s1_joined = s1_left * s1_right
    return out_joined, s1_joined


@triton.jit
def linear_recurrence_permute_3_stored_kernel(x0_ptr, x1_ptr, out_ptr):
    pid = tl.program_id(0)
    r_0 = pid
    offs_r = r_0 + tl.arange(0, 1)
    offs_c = tl.arange(0, 4096)
    x1 = tl.load(x1_ptr + offs_r[:, None] * 4096 + offs_c[None, :])
    x0 = tl.load(x0_ptr + offs_r[:, None] * 4096 + offs_c[None, :])
    t = x0 * -1
    t2 = tl.exp2(t * 1.4426950408889634)
    t3 = 1.0 + t2
    s1_each = _div_by_sum(1.0, t3)
    out, s1 = tl.associative_scan((x1, s1_each), 1, _linear_recurrence_permute_3_stored_kernel_out)
    tl.store(out_ptr + offs_r[:, None] * 4096 + offs_c[None, :], out)


def _axes(like, *sizes):
    """The indices along each dimension of a tensor of these sizes, as tensors that broadcast with each other."""
    rank = len(sizes)
    ranges = [torch.arange(size, device=like.device) for size in sizes]
    return [r.reshape([-1 if i == d else 1 for i in range(rank)]) for d, r in enumerate(ranges)]


def _scanned(combine, elements, dim, reverse):
    """Every element combined with all before it along a dimension, or all after it: in steps that double."""
    made, step = [e.flip(dim) if reverse else e for e in elements], 1
    while step < made[0].shape[dim]:
        rest = made[0].shape[dim] - step
        joined = combine([x.narrow(dim, 0, rest) for x in made], [x.narrow(dim, step, rest) for x in made])
        made = [torch.cat([x.narrow(dim, 0, step), y], dim) for x, y in zip(made, joined)]
        step *= 2
    return [x.flip(dim) if reverse else x for x in made]


def _check(name, tensor, shape, strides, dtype, device):
    """Raise ValueError unless the kernels, which have shapes and strides built in, can take the tensor."""
    if tuple(tensor.shape) != shape or tensor.dtype != dtype or tensor.device != device:
        got = f"{list(tensor.shape)} {tensor.dtype} on {tensor.device}"
        raise ValueError(f"{name}: got {got}; expected {list(shape)} {dtype} on {device}")
    if any(size > 1 and got != want for size, got, want in zip(shape, tensor.stride(), strides)):
        raise ValueError(f"{name}: strides {tensor.stride()}; expected {strides}")
    if tensor.data_ptr() % 16:
        raise ValueError(f"{name} begins at {tensor.data_ptr():#x}; expected a multiple of 16, as of {name}.clone()")


def launch_linear_recurrence_permute_3_stored(x0, x1, empty):
    out = empty((4096, 4096), (4096, 1), dtype=torch.float32, device=x0.device)
    with torch.cuda.device_of(x0):
        linear_recurrence_permute_3_stored_kernel[(4096,)](x0, x1, out, num_warps=4, num_stages=1)
    return out


def linear_recurrence_permute_3_stored(x0, x1):
    """out[4096, 4096] float32 of x0[4096, 4096] float32, x1[4096, 4096] float32."""
    _check("x0", x0, (4096, 4096), (4096, 1), torch.float32, x0.device)
    _check("x1", x1, (4096, 4096), (4096, 1), torch.float32, x0.device)
    _checked(x0.device)
    return launch_linear_recurrence_permute_3_stored(x0, x1, torch.empty_strided)


def _reference(x0, x1):
    """The same by PyTorch alone, computed in the element type of the arguments."""
    # out[d0, d1] = scan along d1 of x1[d0, d1]
    d0, d1 = _axes(x0, 4096, 4096)
    out = x1[d0, d1]
    # s1[d0, d1] = scan along d1 of div(1, add(1, exp(neg(x0[d0, d1]))))
    s1 = 1.0 / (1.0 + torch.exp(-x0[d0, d1]))
    def combine(left, right):
        return [(left[0] * right[1]) + right[0], left[1] * right[1]]
    out, s1 = _scanned(combine, [out, s1], 1, False)
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
        _random((4096, 4096), (4096, 1), torch.float32, generator, empty),  # x0
        _random((4096, 4096), (4096, 1), torch.float32, generator, empty),  # x1
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
    got = launch_linear_recurrence_permute_3_stored(*inputs, guards)
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
        raise RuntimeError("linear_recurrence_permute_3_stored checks its kernels at its first call; expected one before a graph is captured")
    worst = _worst(device)
    if worst > 1:
        raise RuntimeError(
            f"linear_recurrence_permute_3_stored is wrong here: on random inputs its largest error is {worst:.2g} of what is allowed "
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
    label = "linear_recurrence_permute_3_stored 4096x4096 float32"
    line = f"{label}: {verdict}, the largest error is {worst:.2g} of what is allowed"
    if device.type == "cuda" and worst <= 1:
        inputs = _inputs(torch.Generator(device).manual_seed(0), torch.empty_strided)
        took = _latency_us(lambda: linear_recurrence_permute_3_stored(*inputs))
        line += f"; {took:.1f} us with hot caches on {torch.cuda.get_device_name()}"
        line += " (tuned to 53.1 us with cold caches on NVIDIA H200)"
    print(line)
    return worst <= 1


if __name__ == "__main__":
    sys.exit(0 if _self_test() else 1)
