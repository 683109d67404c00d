# a schedule
#
# a: (100, 40) float16
# b: (40, 60) float16
# out: (100, 60) float16
#
# kernel matmul: grid m.0 in 4, n.0 in 2  [warps 4, stages 3]
#   acc: (m 32, n 32) float32 = 0
#   for k.0 in 3:  # 3 stages
#     a_tile: (m 32, k 16) float16 = load a[m.0*32 : +32, k.0*16 : +16]
#     b_tile: (k 16, n 32) float16 = load b[k.0*16 : +16, n.0*32 : +32]
#     acc += dot(a_tile, b_tile) over k
#   acc: (m 32, n 32) float32 = maximum(acc, 0)
#   store out[m.0*32 : +32, n.0*32 : +32] = acc
import triton
import triton.language as tl


@triton.jit
def matmul(a_ptr, b_ptr, out_ptr):
    pid = tl.program_id(0)
    m_0 = pid // 2
    n_0 = pid % 2
    offs_m = m_0 * 32 + tl.arange(0, 32)
    mask_m = offs_m < 100
    offs_n = n_0 * 32 + tl.arange(0, 32)
    mask_n = offs_n < 60
    acc = tl.full([32, 32], 0.0, tl.float32)
    for k_0 in tl.range(3, num_stages=3):
        offs_k = k_0 * 16 + tl.arange(0, 16)
        mask_k = offs_k < 40
        a_tile = tl.load(
            a_ptr + offs_m[:, None] * 40 + offs_k[None, :],
            mask=mask_m[:, None] & mask_k[None, :],
            other=0.0,
        )
        b_tile = tl.load(
            b_ptr + offs_k[:, None] * 60 + offs_n[None, :],
            mask=mask_k[:, None] & mask_n[None, :],
            other=0.0,
        )
        acc = tl.dot(a_tile, b_tile, acc)
    acc = tl.maximum(acc, 0.0, tl.PropagateNan.ALL)
    tl.store(
        out_ptr + offs_m[:, None] * 60 + offs_n[None, :],
        acc.to(tl.float16),
        mask=mask_m[:, None] & mask_n[None, :],
    )
