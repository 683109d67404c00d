# scan_split
#
# kernel recurrence_totals: grid r.0 in 2, s in 4  [warps 4, stages 1]
#   a_carry: (r 1) float32 = 0
#   h_carry: (r 1) float32 = 0
#   started: () float32 = 0
#   for c.0 in 1:  # 1 stages, while c.0*2048 + s*2048 < 4096
#     u: (r 1, c 2048) float32 = load u[r.0 : +1, c.0*2048 + s*2048 : +2048]
#     t: (r 1, c 2048) float32 = neg(u)
#     t2: (r 1, c 2048) float32 = exp(t)
#     t3: (r 1, c 2048) float32 = add(t2, 1)
#     a_each: (r 1, c 2048) float32 = div(1, t3)
#     x: (r 1, c 2048) float32 = load x[r.0 : +1, c.0*2048 + s*2048 : +2048]
#     a2: (r 1, c 2048) float32, h2 = scan of a_each, x along c by mul(a_left, a_right), add(mul(h_left, a_right), h_right)
#     a_joined2: (r 1, c 2048) float32 = mul(a_carry, a2)
#     t5: (r 1, c 2048) float32 = mul(h_carry, a2)
#     h_joined2: (r 1, c 2048) float32 = add(t5, h2)
#     a3: (r 1, c 2048) float32 = where(started, a_joined2, a2)
#     h3: (r 1, c 2048) float32 = where(started, h_joined2, h2)
#     a_carry: (r 1) float32 = a3[0 : +1, 2047]
#     h_carry: (r 1) float32 = h3[0 : +1, 2047]
#     started: () float32 = 1
#   store total_a[s, r.0 : +1] = a_carry
#   store total_h[s, r.0 : +1] = h_carry
# kernel recurrence_wholes: grid r.0 in 2  [warps 4, stages 1]
#   a_totals: (s 4, r 1) float32 = load total_a[0 : +4, r.0 : +1]
#   h_totals: (s 4, r 1) float32 = load total_h[0 : +4, r.0 : +1]
#   a2: (s 4, r 1) float32, h2 = scan of a_totals, h_totals along s by mul(a_left, a_right), add(mul(h_left, a_right), h_right)
#   store whole_a[0 : +4, r.0 : +1] = a2
#   store whole_h[0 : +4, r.0 : +1] = h2
# kernel recurrence_scan: grid r.0 in 2, s in 4  [warps 4, stages 1]
#   a_carry: (r 1) float32 = load whole_a[s + -1, r.0 : +1]
#   h_carry: (r 1) float32 = load whole_h[s + -1, r.0 : +1]
#   part: () float32 = s
#   started: () float32 = minimum(part, 1)
#   for c.0 in 1:  # 1 stages, while c.0*2048 + s*2048 < 4096
#     u: (r 1, c 2048) float32 = load u[r.0 : +1, c.0*2048 + s*2048 : +2048]
#     t: (r 1, c 2048) float32 = neg(u)
#     t2: (r 1, c 2048) float32 = exp(t)
#     t3: (r 1, c 2048) float32 = add(t2, 1)
#     a_each: (r 1, c 2048) float32 = div(1, t3)
#     x: (r 1, c 2048) float32 = load x[r.0 : +1, c.0*2048 + s*2048 : +2048]
#     a2: (r 1, c 2048) float32, h2 = scan of a_each, x along c by mul(a_left, a_right), add(mul(h_left, a_right), h_right)
#     a_joined2: (r 1, c 2048) float32 = mul(a_carry, a2)
#     t5: (r 1, c 2048) float32 = mul(h_carry, a2)
#     h_joined2: (r 1, c 2048) float32 = add(t5, h2)
#     a3: (r 1, c 2048) float32 = where(started, a_joined2, a2)
#     h3: (r 1, c 2048) float32 = where(started, h_joined2, h2)
#     a_carry: (r 1) float32 = a3[0 : +1, 2047]
#     h_carry: (r 1) float32 = h3[0 : +1, 2047]
#     started: () float32 = 1
#     store h[r.0 : +1, c.0*2048 + s*2048 : +2048] = h3
import triton
import triton.language as tl


@triton.jit
def _div_by_sum(a, b):
    # The hardware's root of a number that is positive and not denormal; its square may be denormal.
    root = tl.rsqrt(tl.cast(b, tl.float32))
    return a * (root * root)


@triton.jit
def _recurrence_totals_a2(a_left, h_left, a_right, h_right):
    a_joined = a_left * a_right
    t4 = h_left * a_right
    h_joined = t4 + h_right
    return a_joined, h_joined


@triton.jit
def recurrence_totals(u_ptr, x_ptr, total_a_ptr, total_h_ptr):
    pid = tl.program_id(0)
    r_0 = pid // 4
    s = pid % 4
    offs_r = r_0 + tl.arange(0, 1)
    offs_c = s * 2048 + tl.arange(0, 2048)
    mask_c = offs_c < 4096
    a_carry = tl.full([1], 0.0, tl.float32)
    h_carry = tl.full([1], 0.0, tl.float32)
    started = tl.full([], 0.0, tl.float32)
    for c_0 in tl.range(tl.minimum(1, tl.cdiv(4096 - (s * 2048), 2048)), num_stages=1):
        u = tl.load(u_ptr + offs_r[:, None] * 4096 + offs_c[None, :], mask=mask_c[None, :], other=0.0)
        t = u * -1
        t2 = tl.exp2(t * 1.4426950408889634)
        t3 = t2 + 1.0
        a_each = _div_by_sum(1.0, t3)
        x = tl.load(x_ptr + offs_r[:, None] * 4096 + offs_c[None, :], mask=mask_c[None, :], other=0.0)
        a2, h2 = tl.associative_scan((a_each, x), 1, _recurrence_totals_a2)
        a_joined2 = a_carry[:, None] * a2
        t5 = h_carry[:, None] * a2
        h_joined2 = t5 + h2
        a3 = tl.where(started != 0.0, a_joined2, a2)
        h3 = tl.where(started != 0.0, h_joined2, h2)
        a_carry = tl.sum(tl.where((tl.arange(0, 2048) == 2047)[None, :], a3, 0.0), axis=1)
        h_carry = tl.sum(tl.where((tl.arange(0, 2048) == 2047)[None, :], h3, 0.0), axis=1)
        started = tl.full([], 1.0, tl.float32)
    tl.store(total_a_ptr + s * 2 + offs_r, a_carry)
    tl.store(total_h_ptr + s * 2 + offs_r, h_carry)


@triton.jit
def _recurrence_wholes_a2(a_left, h_left, a_right, h_right):
    a_joined = a_left * a_right
    t = h_left * a_right
    h_joined = t + h_right
    return a_joined, h_joined


@triton.jit
def recurrence_wholes(total_a_ptr, total_h_ptr, whole_a_ptr, whole_h_ptr):
    pid = tl.program_id(0)
    r_0 = pid
    offs_s = tl.arange(0, 4)
    offs_r = r_0 + tl.arange(0, 1)
    a_totals = tl.load(total_a_ptr + offs_s[:, None] * 2 + offs_r[None, :])
    h_totals = tl.load(total_h_ptr + offs_s[:, None] * 2 + offs_r[None, :])
    a2, h2 = tl.associative_scan((a_totals, h_totals), 0, _recurrence_wholes_a2)
    tl.store(whole_a_ptr + offs_s[:, None] * 2 + offs_r[None, :], a2)
    tl.store(whole_h_ptr + offs_s[:, None] * 2 + offs_r[None, :], h2)


@triton.jit
def _recurrence_scan_a2(a_left, h_left, a_right, h_right):
    a_joined = a_left * a_right
    t4 = h_left * a_right
    h_joined = t4 + h_right
    return a_joined, h_joined


@triton.jit
def recurrence_scan(u_ptr, x_ptr, h_ptr, whole_a_ptr, whole_h_ptr):
    pid = tl.program_id(0)
    r_0 = pid // 4
    s = pid % 4
    mask_whole_a_row = s - 1 >= 0
    offs_r = r_0 + tl.arange(0, 1)
    mask_whole_h_row = s - 1 >= 0
    offs_c = s * 2048 + tl.arange(0, 2048)
    mask_c = offs_c < 4096
    a_carry = tl.load(whole_a_ptr + s * 2 - 2 + offs_r, mask=mask_whole_a_row, other=0)
    h_carry = tl.load(whole_h_ptr + s * 2 - 2 + offs_r, mask=mask_whole_h_row, other=0)
    part = tl.cast(s, tl.float32)
    started = tl.minimum(part, 1.0, tl.PropagateNan.ALL)
    for c_0 in tl.range(tl.minimum(1, tl.cdiv(4096 - (s * 2048), 2048)), num_stages=1):
        u = tl.load(u_ptr + offs_r[:, None] * 4096 + offs_c[None, :], mask=mask_c[None, :], other=0.0)
        t = u * -1
        t2 = tl.exp2(t * 1.4426950408889634)
        t3 = t2 + 1.0
        a_each = _div_by_sum(1.0, t3)
        x = tl.load(x_ptr + offs_r[:, None] * 4096 + offs_c[None, :], mask=mask_c[None, :], other=0.0)
        a2, h2 = tl.associative_scan((a_each, x), 1, _recurrence_scan_a2)
        a_joined2 = a_carry[:, None] * a2
        t5 = h_carry[:, None] * a2
        h_joined2 = t5 + h2
        a3 = tl.where(started != 0.0, a_joined2, a2)
        h3 = tl.where(started != 0.0, h_joined2, h2)
        a_carry = tl.sum(tl.where((tl.arange(0, 2048) == 2047)[None, :], a3, 0.0), axis=1)
        h_carry = tl.sum(tl.where((tl.arange(0, 2048) == 2047)[None, :], h3, 0.0), axis=1)
        started = tl.full([], 1.0, tl.float32)
        tl.store(h_ptr + offs_r[:, None] * 4096 + offs_c[None, :], h3, mask=mask_c[None, :])
