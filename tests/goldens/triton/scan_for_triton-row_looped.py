# row_looped
#
# kernel recurrence: grid r.0 in 2  [warps 4, stages 1]
#   a_carry: (r 1) float32 = 0
#   h_carry: (r 1) float32 = 0
#   started: () float32 = 0
#   for c.0 in 2:  # 1 stages
#     u: (r 1, c 2048) float32 = load u[r.0 : +1, c.0*2048 : +2048]
#     t: (r 1, c 2048) float32 = neg(u)
#     t2: (r 1, c 2048) float32 = exp(t)
#     t3: (r 1, c 2048) float32 = add(t2, 1)
#     a_each: (r 1, c 2048) float32 = div(1, t3)
#     x: (r 1, c 2048) float32 = load x[r.0 : +1, c.0*2048 : +2048]
#     a2: (r 1, c 2048) float32, h2 = scan of a_each, x along c by mul(a_left, a_right), add(mul(h_left, a_right), h_right)
#     a_joined2: (r 1, c 2048) float32 = mul(a_carry, a2)
#     t5: (r 1, c 2048) float32 = mul(h_carry, a2)
#     h_joined2: (r 1, c 2048) float32 = add(t5, h2)
#     a3: (r 1, c 2048) float32 = where(started, a_joined2, a2)
#     h3: (r 1, c 2048) float32 = where(started, h_joined2, h2)
#     a_carry: (r 1) float32 = a3[0 : +1, 2047]
#     h_carry: (r 1) float32 = h3[0 : +1, 2047]
#     started: () float32 = 1
#     store h[r.0 : +1, c.0*2048 : +2048] = h3
import triton
import triton.language as tl


@triton.jit
def _div_by_sum(a, b):
    # The hardware's root of a number that is positive and not denormal; its square may be denormal.
    root = tl.rsqrt(tl.cast(b, tl.float32))
    return a * (root * root)


@triton.jit
def _recurrence_a2(a_left, h_left, a_right, h_right):
    a_joined = a_left * a_right
    t4 = h_left * a_right
    h_joined = t4 + h_right
    return a_joined, h_joined


@triton.jit
def recurrence(u_ptr, x_ptr, h_ptr):
    pid = tl.program_id(0)
    r_0 = pid
    offs_r = r_0 + tl.arange(0, 1)
    a_carry = tl.full([1], 0.0, tl.float32)
    h_carry = tl.full([1], 0.0, tl.float32)
    started = tl.full([], 0.0, tl.float32)
    for c_0 in tl.range(2, num_stages=1):
        offs_c = c_0 * 2048 + tl.arange(0, 2048)
        u = tl.load(u_ptr + offs_r[:, None] * 4096 + offs_c[None, :])
        t = u * -1
        t2 = tl.exp2(t * 1.4426950408889634)
        t3 = t2 + 1.0
        a_each = _div_by_sum(1.0, t3)
        x = tl.load(x_ptr + offs_r[:, None] * 4096 + offs_c[None, :])
        a2, h2 = tl.associative_scan((a_each, x), 1, _recurrence_a2)
        a_joined2 = a_carry[:, None] * a2
        t5 = h_carry[:, None] * a2
        h_joined2 = t5 + h2
        a3 = tl.where(started != 0.0, a_joined2, a2)
        h3 = tl.where(started != 0.0, h_joined2, h2)
        a_carry = tl.sum(tl.where((tl.arange(0, 2048) == 2047)[None, :], a3, 0.0), axis=1)
        h_carry = tl.sum(tl.where((tl.arange(0, 2048) == 2047)[None, :], h3, 0.0), axis=1)
        started = tl.full([], 1.0, tl.float32)
        tl.store(h_ptr + offs_r[:, None] * 4096 + offs_c[None, :], h3)
