# a schedule
#
# a: (32, 200) float32
# b: (200, 48) float32
# out: (32, 48) float32
#
# zero out
# kernel split: grid s in 3, m.0 in 2, n.0 in 3  [warps 4, stages 1]
#   acc: (m 16, n 16) float32 = 0
#   for k.0 in 5:  # while k.0*16 + s*80 < 200
#     a: (m 16, k 16) float32 = load a[m.0*16 : +16, k.0*16 + s*80 : +16]
#     b: (k 16, n 16) float32 = load b[k.0*16 + s*80 : +16, n.0*16 : +16]
#     acc += dot(a, b) over k
#   store out[m.0*16 : +16, n.0*16 : +16] = acc  (atomic add)
import triton
import triton.language as tl


@triton.jit
def split(a_ptr, b_ptr, out_ptr):
    pid = tl.program_id(0)
    s = pid // 6
    m_0 = pid // 3 % 2
    n_0 = pid % 3
    offs_m = m_0 * 16 + tl.arange(0, 16)
    offs_n = n_0 * 16 + tl.arange(0, 16)
    acc = tl.full([16, 16], 0.0, tl.float32)
    for k_0 in range(tl.minimum(5, tl.cdiv(200 - (s * 80), 16))):
        offs_k = k_0 * 16 + s * 80 + tl.arange(0, 16)
        mask_k = offs_k < 200
        a = tl.load(a_ptr + offs_m[:, None] * 200 + offs_k[None, :], mask=mask_k[None, :], other=0.0)
        b = tl.load(b_ptr + offs_k[:, None] * 48 + offs_n[None, :], mask=mask_k[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.atomic_add(out_ptr + offs_m[:, None] * 48 + offs_n[None, :], acc, sem="relaxed")
