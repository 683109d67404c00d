# shared
#
# in0: (2, 4096) float32
# in1: (2, 4096) float32
# out0: (2, 4096) float32
# total_t0: (4, 2) float32, workspace
# total_out0: (4, 2) float32, workspace
# whole_t0: (4, 2) float32, workspace
# whole_out0: (4, 2) float32, workspace
#
# kernel scan_scan_2x4096_totals: grid r.0 in 2, s in 4  [warps 4, stages 1]
#   t0_carry: (r 1) float32 = 0
#   out0_carry: (r 1) float32 = 0
#   started: () float32 = 0
#   for c.0 in 1:  # 1 stages, while c.0*2048 + s*2048 < 4096
#     in0: (r 1, c 2048) float32 = load in0[r.0 : +1, c.0*2048 + s*2048 : +2048]
#     t: (r 1, c 2048) float32 = neg(in0)
#     t2: (r 1, c 2048) float32 = exp(t)
#     t3: (r 1, c 2048) float32 = add(t2, 1)
#     t0_each: (r 1, c 2048) float32 = div(1, t3)
#     in1: (r 1, c 2048) float32 = load in1[r.0 : +1, c.0*2048 + s*2048 : +2048]
#     t02: (r 1, c 2048) float32, out02 = scan of t0_each, in1 along c by mul(t0_left, t0_right), add(mul(t0_right, out0_left), out0_right)
#     t0_joined2: (r 1, c 2048) float32 = mul(t0_carry, t02)
#     t5: (r 1, c 2048) float32 = mul(t02, out0_carry)
#     out0_joined2: (r 1, c 2048) float32 = add(t5, out02)
#     t03: (r 1, c 2048) float32 = where(started, t0_joined2, t02)
#     out03: (r 1, c 2048) float32 = where(started, out0_joined2, out02)
#     t0_carry: (r 1) float32 = t03[0 : +1, 2047]
#     out0_carry: (r 1) float32 = out03[0 : +1, 2047]
#     started: () float32 = 1
#   store total_t0[s, r.0 : +1] = t0_carry
#   store total_out0[s, r.0 : +1] = out0_carry
# kernel scan_scan_2x4096_wholes: grid r.0 in 2  [warps 4, stages 1]
#   t0_totals: (s 4, r 1) float32 = load total_t0[0 : +4, r.0 : +1]
#   out0_totals: (s 4, r 1) float32 = load total_out0[0 : +4, r.0 : +1]
#   t02: (s 4, r 1) float32, out02 = scan of t0_totals, out0_totals along s by mul(t0_left, t0_right), add(mul(t0_right, out0_left), out0_right)
#   store whole_t0[0 : +4, r.0 : +1] = t02
#   store whole_out0[0 : +4, r.0 : +1] = out02
# kernel scan_scan_2x4096_scan: grid r.0 in 2, s in 4  [warps 4, stages 1]
#   t0_carry: (r 1) float32 = load whole_t0[s + -1, r.0 : +1]
#   out0_carry: (r 1) float32 = load whole_out0[s + -1, r.0 : +1]
#   part: () float32 = s
#   started: () float32 = minimum(part, 1)
#   for c.0 in 1:  # 1 stages, while c.0*2048 + s*2048 < 4096
#     in0: (r 1, c 2048) float32 = load in0[r.0 : +1, c.0*2048 + s*2048 : +2048]
#     t: (r 1, c 2048) float32 = neg(in0)
#     t2: (r 1, c 2048) float32 = exp(t)
#     t3: (r 1, c 2048) float32 = add(t2, 1)
#     t0_each: (r 1, c 2048) float32 = div(1, t3)
#     in1: (r 1, c 2048) float32 = load in1[r.0 : +1, c.0*2048 + s*2048 : +2048]
#     t02: (r 1, c 2048) float32, out02 = scan of t0_each, in1 along c by mul(t0_left, t0_right), add(mul(t0_right, out0_left), out0_right)
#     t0_joined2: (r 1, c 2048) float32 = mul(t0_carry, t02)
#     t5: (r 1, c 2048) float32 = mul(t02, out0_carry)
#     out0_joined2: (r 1, c 2048) float32 = add(t5, out02)
#     t03: (r 1, c 2048) float32 = where(started, t0_joined2, t02)
#     out03: (r 1, c 2048) float32 = where(started, out0_joined2, out02)
#     t0_carry: (r 1) float32 = t03[0 : +1, 2047]
#     out0_carry: (r 1) float32 = out03[0 : +1, 2047]
#     started: () float32 = 1
#     store out0[r.0 : +1, c.0*2048 + s*2048 : +2048] = out03
import triton
import triton.language as tl


@triton.jit
def _div_by_sum(a, b):
    # The hardware's root of a number that is positive and not denormal; its square may be denormal.
    root = tl.rsqrt(tl.cast(b, tl.float32))
    return a * (root * root)


@triton.jit
def _scan_scan_2x4096_totals_t02(t0_left, out0_left, t0_right, out0_right):
    t0_joined = t0_left * t0_right
    t4 = t0_right * out0_left
    out0_joined = t4 + out0_right
    return t0_joined, out0_joined


@triton.jit
def scan_scan_2x4096_totals(in0_ptr, in1_ptr, total_t0_ptr, total_out0_ptr):
    pid = tl.program_id(0)
    r_0 = pid // 4
    s = pid % 4
    offs_r = r_0 + tl.arange(0, 1)
    offs_c = s * 2048 + tl.arange(0, 2048)
    mask_c = offs_c < 4096
    t0_carry = tl.full([1], 0.0, tl.float32)
    out0_carry = tl.full([1], 0.0, tl.float32)
    started = tl.full([], 0.0, tl.float32)
    for c_0 in tl.range(tl.minimum(1, tl.cdiv(4096 - (s * 2048), 2048)), num_stages=1):
        in0 = tl.load(in0_ptr + offs_r[:, None] * 4096 + offs_c[None, :], mask=mask_c[None, :], other=0.0)
        t = in0 * -1
        t2 = tl.exp2(t * 1.4426950408889634)
        t3 = t2 + 1.0
        t0_each = _div_by_sum(1.0, t3)
        in1 = tl.load(in1_ptr + offs_r[:, None] * 4096 + offs_c[None, :], mask=mask_c[None, :], other=0.0)
        t02, out02 = tl.associative_scan((t0_each, in1), 1, _scan_scan_2x4096_totals_t02)
        t0_joined2 = t0_carry[:, None] * t02
        t5 = t02 * out0_carry[:, None]
        out0_joined2 = t5 + out02
        t03 = tl.where(started != 0.0, t0_joined2, t02)
        out03 = tl.where(started != 0.0, out0_joined2, out02)
        t0_carry = tl.sum(tl.where((tl.arange(0, 2048) == 2047)[None, :], t03, 0.0), axis=1)
        out0_carry = tl.sum(tl.where((tl.arange(0, 2048) == 2047)[None, :], out03, 0.0), axis=1)
        started = tl.full([], 1.0, tl.float32)
    tl.store(total_t0_ptr + s * 2 + offs_r, t0_carry)
    tl.store(total_out0_ptr + s * 2 + offs_r, out0_carry)


@triton.jit
def _scan_scan_2x4096_wholes_t02(t0_left, out0_left, t0_right, out0_right):
    t0_joined = t0_left * t0_right
    t = t0_right * out0_left
    out0_joined = t + out0_right
    return t0_joined, out0_joined


@triton.jit
def scan_scan_2x4096_wholes(total_t0_ptr, total_out0_ptr, whole_t0_ptr, whole_out0_ptr):
    pid = tl.program_id(0)
    r_0 = pid
    offs_s = tl.arange(0, 4)
    offs_r = r_0 + tl.arange(0, 1)
    t0_totals = tl.load(total_t0_ptr + offs_s[:, None] * 2 + offs_r[None, :])
    out0_totals = tl.load(total_out0_ptr + offs_s[:, None] * 2 + offs_r[None, :])
    t02, out02 = tl.associative_scan((t0_totals, out0_totals), 0, _scan_scan_2x4096_wholes_t02)
    tl.store(whole_t0_ptr + offs_s[:, None] * 2 + offs_r[None, :], t02)
    tl.store(whole_out0_ptr + offs_s[:, None] * 2 + offs_r[None, :], out02)


@triton.jit
def _scan_scan_2x4096_scan_t02(t0_left, out0_left, t0_right, out0_right):
    t0_joined = t0_left * t0_right
    t4 = t0_right * out0_left
    out0_joined = t4 + out0_right
    return t0_joined, out0_joined


@triton.jit
def scan_scan_2x4096_scan(in0_ptr, in1_ptr, out0_ptr, whole_t0_ptr, whole_out0_ptr):
    pid = tl.program_id(0)
    r_0 = pid // 4
    s = pid % 4
    mask_whole_t0_row = s - 1 >= 0
    offs_r = r_0 + tl.arange(0, 1)
    mask_whole_out0_row = s - 1 >= 0
    offs_c = s * 2048 + tl.arange(0, 2048)
    mask_c = offs_c < 4096
    t0_carry = tl.load(whole_t0_ptr + s * 2 - 2 + offs_r, mask=mask_whole_t0_row, other=0)
    out0_carry = tl.load(whole_out0_ptr + s * 2 - 2 + offs_r, mask=mask_whole_out0_row, other=0)
    part = tl.cast(s, tl.float32)
    started = tl.minimum(part, 1.0, tl.PropagateNan.ALL)
    for c_0 in tl.range(tl.minimum(1, tl.cdiv(4096 - (s * 2048), 2048)), num_stages=1):
        in0 = tl.load(in0_ptr + offs_r[:, None] * 4096 + offs_c[None, :], mask=mask_c[None, :], other=0.0)
        t = in0 * -1
        t2 = tl.exp2(t * 1.4426950408889634)
        t3 = t2 + 1.0
        t0_each = _div_by_sum(1.0, t3)
        in1 = tl.load(in1_ptr + offs_r[:, None] * 4096 + offs_c[None, :], mask=mask_c[None, :], other=0.0)
        t02, out02 = tl.associative_scan((t0_each, in1), 1, _scan_scan_2x4096_scan_t02)
        t0_joined2 = t0_carry[:, None] * t02
        t5 = t02 * out0_carry[:, None]
        out0_joined2 = t5 + out02
        t03 = tl.where(started != 0.0, t0_joined2, t02)
        out03 = tl.where(started != 0.0, out0_joined2, out02)
        t0_carry = tl.sum(tl.where((tl.arange(0, 2048) == 2047)[None, :], t03, 0.0), axis=1)
        out0_carry = tl.sum(tl.where((tl.arange(0, 2048) == 2047)[None, :], out03, 0.0), axis=1)
        started = tl.full([], 1.0, tl.float32)
        tl.store(out0_ptr + offs_r[:, None] * 4096 + offs_c[None, :], out03, mask=mask_c[None, :])
