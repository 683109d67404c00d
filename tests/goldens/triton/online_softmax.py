# a schedule
#
# x: (10, 100) float32
# out: (10, 100) float32
#
# kernel softmax: grid r.0 in 3  [warps 4, stages 1]
#   top: (r 4) float32 = -1e+30
#   total: (r 4) float32 = 0
#   for c.0 in 4:
#     x: (r 4, c 32) float32 = load x[r.0*4 : +4, c.0*32 : +32]
#     part: (r 4) float32 = max of x over c
#     new: (r 4) float32 = maximum(top, part)
#     scale: (r 4) float32 = sub(top, new)
#     scale: (r 4) float32 = exp(scale)
#     total: (r 4) float32 = mul(total, scale)
#     e: (r 4, c 32) float32 = sub(x, new)
#     e: (r 4, c 32) float32 = exp(e)
#     part: (r 4) float32 = sum of e over c
#     total: (r 4) float32 = add(total, part)
#     top: (r 4) float32 = maximum(top, new)
#   for c.0 in 4:
#     x: (r 4, c 32) float32 = load x[r.0*4 : +4, c.0*32 : +32]  (evict_first)
#     e: (r 4, c 32) float32 = sub(x, top)
#     e: (r 4, c 32) float32 = exp(e)
#     e: (r 4, c 32) float32 = div(e, total)
#     store out[r.0*4 : +4, c.0*32 : +32] = e  (streaming)
import triton
import triton.language as tl


@triton.jit
def _max(a, b):
    return tl.maximum(a, b, tl.PropagateNan.ALL)


@triton.jit
def softmax(x_ptr, out_ptr):
    pid = tl.program_id(0)
    r_0 = pid
    offs_r = r_0 * 4 + tl.arange(0, 4)
    mask_r = offs_r < 10
    top = tl.full([4], -1e+30, tl.float32)
    total = tl.full([4], 0.0, tl.float32)
    for c_0 in range(4):
        offs_c = c_0 * 32 + tl.arange(0, 32)
        mask_c = offs_c < 100
        x = tl.load(
            x_ptr + offs_r[:, None] * 100 + offs_c[None, :],
            mask=mask_r[:, None] & mask_c[None, :],
            other=-float("inf"),
        )
        part = tl.reduce(tl.where(mask_c[None, :], x, -float("inf")), 1, _max)
        new = tl.maximum(top, part, tl.PropagateNan.ALL)
        scale = top - new
        scale = tl.exp(scale)
        total = total * scale
        e = x - new[:, None]
        e = tl.exp(e)
        part = tl.sum(tl.where(mask_c[None, :], e, 0.0), axis=1)
        total = total + part
        top = tl.maximum(top, new, tl.PropagateNan.ALL)
    for c_0 in range(4):
        offs_c = c_0 * 32 + tl.arange(0, 32)
        mask_c = offs_c < 100
        x = tl.load(
            x_ptr + offs_r[:, None] * 100 + offs_c[None, :],
            mask=mask_r[:, None] & mask_c[None, :],
            other=0.0,
            eviction_policy="evict_first",
        )
        e = x - top[:, None]
        e = tl.exp(e)
        e = e / total[:, None]
        tl.store(
            out_ptr + offs_r[:, None] * 100 + offs_c[None, :],
            e,
            mask=mask_r[:, None] & mask_c[None, :],
            eviction_policy="evict_first",
        )
