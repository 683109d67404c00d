# a schedule
# of two lines
#
# a: (96, 64) float16
# b: (64, 64) float16
# out: (96, 64) float16
#
# kernel matmul: grid m.0 in 3, n.0 in 2, m.0 in groups of 2, persistent on 4 programs  [warps 4, stages 3]
#   acc: (m 32, n 32) float32 = 0
#   for k.0 in 4:  # 3 stages, flattened
#     a_tile: (m 32, k 16) float16 = load a[m.0*32 : +32, k.0*16 : +16]  (descriptor)
#     b_tile: (n 32, k 16) float16 = load b[n.0*32 : +32, k.0*16 : +16]  (descriptor)
#     acc += dot(a_tile, b_tile) over k
#   left: (m 32, n 16) float32, right = halves of acc along n
#   left: (m 32, n 16) float32 = maximum(left, 0)
#   store out[m.0*32 : +32, n.0*32 : +16] = left  (descriptor)
#   right: (m 32, n 16) float32 = maximum(right, 0)
#   store out[m.0*32 : +32, n.0*32 + 16 : +16] = right  (descriptor)
import triton
import triton.language as tl


@triton.jit
def matmul(a_desc, b_desc, out_desc):
    pid = tl.program_id(0)
    for tile in tl.range(pid, 6, 4, flatten=True):
        first = tile // 4 * 2
        height = tl.minimum(3 - first, 2)
        m_0 = first + tile % 4 % height
        n_0 = tile % 4 // height
        acc = tl.full([32, 32], 0.0, tl.float32)
        for k_0 in tl.range(4, num_stages=3):
            a_tile = a_desc.load([m_0 * 32, k_0 * 16])
            b_tile = b_desc.load([n_0 * 32, k_0 * 16])
            acc = tl.dot(a_tile, tl.permute(b_tile, [1, 0]), acc)
        left, right = tl.split(acc.reshape([32, 2, 16]).permute([0, 2, 1]))
        left = tl.maximum(left, 0.0, tl.PropagateNan.ALL)
        out_desc.store([m_0 * 32, n_0 * 32], left.to(tl.float16))
        right = tl.maximum(right, 0.0, tl.PropagateNan.ALL)
        out_desc.store([m_0 * 32, n_0 * 32 + 16], right.to(tl.float16))
