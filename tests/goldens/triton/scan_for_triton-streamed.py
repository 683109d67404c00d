# streamed
#
# in0: (2, 4096) float32
# in1: (2, 4096) float32
# out0: (2, 4096) float32
#
# kernel scan_scan_2x4096: grid r.0 in 2  [warps 4, stages 1]
#   t0_carry: (r 1) float32 = 0
#   out0_carry: (r 1) float32 = 0
#   started: () float32 = 0
#   for c.0 in 2:  # 1 stages
#     in0: (r 1, c 2048) float32 = load in0[r.0 : +1, c.0*2048 : +2048]
#     t: (r 1, c 2048) float32 = neg(in0)
#     t2: (r 1, c 2048) float32 = exp(t)
#     t3: (r 1, c 2048) float32 = add(t2, 1)
#     t0_each: (r 1, c 2048) float32 = div(1, t3)
#     in1: (r 1, c 2048) float32 = load in1[r.0 : +1, c.0*2048 : +2048]
#     t02: (r 1, c 2048) float32, out02 = scan of t0_each, in1 along c by mul(t0_left, t0_right), add(mul(t0_right, out0_left), out0_right)
#     t0_joined2: (r 1, c 2048) float32 = mul(t0_carry, t02)
#     t5: (r 1, c 2048) float32 = mul(t02, out0_carry)
#     out0_joined2: (r 1, c 2048) float32 = add(t5, out02)
#     t03: (r 1, c 2048) float32 = where(started, t0_joined2, t02)
#     out03: (r 1, c 2048) float32 = where(started, out0_joined2, out02)
#     t0_carry: (r 1) float32 = t03[0 : +1, 2047]
#     out0_carry: (r 1) float32 = out03[0 : +1, 2047]
#     started: () float32 = 1
#     store out0[r.0 : +1, c.0*2048 : +2048] = out03
import triton
import triton.language as tl


@triton.jit
def _div_by_sum(a, b):
    # The hardware's root of a number that is positive and not denormal; its square may be denormal.
    root = tl.rsqrt(tl.cast(b, tl.float32))
    return a * (root * root)


@triton.jit
def _scan_scan_2x4096_t02(t0_left, out0_left, t0_right, out0_right):
    t0_joined = t0_left * t0_right
    t4 = t0_right * out0_left
    out0_joined = t4 + out0_right
    return t0_joined, out0_joined


@triton.jit
def scan_scan_2x4096(in0_ptr, in1_ptr, out0_ptr):
    pid = tl.program_id(0)
    r_0 = pid
    offs_r = r_0 + tl.arange(0, 1)
    t0_carry = tl.full([1], 0.0, tl.float32)
    out0_carry = tl.full([1], 0.0, tl.float32)
    started = tl.full([], 0.0, tl.float32)
    for c_0 in tl.range(2, num_stages=1):
        offs_c = c_0 * 2048 + tl.arange(0, 2048)
        in0 = tl.load(in0_ptr + offs_r[:, None] * 4096 + offs_c[None, :])
        t = in0 * -1
        t2 = tl.exp2(t * 1.4426950408889634)
        t3 = t2 + 1.0
        t0_each = _div_by_sum(1.0, t3)
        in1 = tl.load(in1_ptr + offs_r[:, None] * 4096 + offs_c[None, :])
        t02, out02 = tl.associative_scan((t0_each, in1), 1, _scan_scan_2x4096_t02)
        t0_joined2 = t0_carry[:, None] * t02
        t5 = t02 * out0_carry[:, None]
        out0_joined2 = t5 + out02
        t03 = tl.where(started != 0.0, t0_joined2, t02)
        out03 = tl.where(started != 0.0, out0_joined2, out02)
        t0_carry = tl.sum(tl.where((tl.arange(0, 2048) == 2047)[None, :], t03, 0.0), axis=1)
        out0_carry = tl.sum(tl.where((tl.arange(0, 2048) == 2047)[None, :], out03, 0.0), axis=1)
        started = tl.full([], 1.0, tl.float32)
        tl.store(out0_ptr + offs_r[:, None] * 4096 + offs_c[None, :], out03)
