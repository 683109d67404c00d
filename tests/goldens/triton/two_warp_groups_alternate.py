# a schedule
#
# a: (8192, 256) bfloat16
# b: (512, 256) bfloat16
# out: (8192, 512) bfloat16
#
# kernel matmul: grid m.0 in 64, n.0 in 4, persistent on 132 programs  [warps 8, stages 1, 1 more to load]
#   acc: (m 128, n 128) float32 = 0
#   for k.0 in 4:  # 3 stages
#     a: (m 128, k 64) bfloat16 = load a[m.0*128 : +128, k.0*64 : +64]  (descriptor)
#     b: (n 128, k 64) bfloat16 = load b[n.0*128 : +128, k.0*64 : +64]  (descriptor)
#     acc += dot(a, b) over k
#   acc_left: (m 128, n 64) float32, acc_right = halves of acc along n
#   store out[m.0*128 : +128, n.0*128 : +64] = acc_left  (descriptor)
#   store out[m.0*128 : +128, n.0*128 + 64 : +64] = acc_right  (descriptor)
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

load_tile = getattr(hopper.tma, "async_load", None) or hopper.tma.async_copy_global_to_shared
store_tile = getattr(hopper.tma, "async_store", None) or hopper.tma.async_copy_shared_to_global


@gluon.jit
def matmul_load(a_desc, b_desc, a_ring, b_ring, full, empty):
    step = 0
    for tile in range(gl.program_id(0), 256, 132):
        m_0 = tile // 4
        n_0 = tile % 4
        for k_0 in range(4):
            slot = step % 3
            hopper.mbarrier.wait(empty.index(slot), step // 3 & 1 ^ 1)
            hopper.mbarrier.expect(full.index(slot), 32768)
            load_tile(a_desc, [m_0 * 128, k_0 * 64], full.index(slot), a_ring.index(slot))
            load_tile(b_desc, [n_0 * 128, k_0 * 64], full.index(slot), b_ring.index(slot))
            step += 1


@gluon.jit
def matmul_finish(acc, out_desc, m_0, n_0, ring, half: gl.constexpr):
    acc_left, acc_right = gl.split(acc.reshape([128, 2, 64]).permute([0, 2, 1]))
    hopper.tma.store_wait(0)
    piece = ring.index(half * 1 + 0)
    piece.store(acc_left.to(gl.bfloat16))
    hopper.fence_async_shared()
    store_tile(out_desc, [m_0 * 128, n_0 * 128], piece)
    hopper.tma.store_wait(0)
    piece = ring.index(half * 1 + 0)
    piece.store(acc_right.to(gl.bfloat16))
    hopper.fence_async_shared()
    store_tile(out_desc, [m_0 * 128, n_0 * 128 + 64], piece)


@gluon.jit
def matmul_dots(out_desc, a_ring, b_ring, full, empty, order, ring, half: gl.constexpr):
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 128, 16])
    step = half * 4
    turn = 1 - half
    for tile in range(gl.program_id(0) + half * 132, 256, 264):
        m_0 = tile // 4
        n_0 = tile % 4
        acc = gl.full([128, 128], 0.0, gl.float32, layout)
        hopper.mbarrier.wait(order.index(half), turn)
        turn ^= 1
        for k_0 in range(4):
            slot = step % 3
            hopper.mbarrier.wait(full.index(slot), step // 3 & 1)
            a = a_ring.index(slot)
            b = b_ring.index(slot).permute((1, 0))
            acc = hopper.warpgroup_mma(a, b, acc, is_async=True)
            acc = hopper.warpgroup_mma_wait(1, deps=(acc,))
            hopper.mbarrier.arrive(empty.index((step + 2) % 3), pred=k_0 > 0)
            step += 1
        hopper.mbarrier.arrive(order.index(1 - half))
        acc = hopper.warpgroup_mma_wait(0, deps=(acc,))
        hopper.mbarrier.arrive(empty.index((step + 2) % 3))
        step += 4
        matmul_finish(acc, out_desc, m_0, n_0, ring, half)
    hopper.tma.store_wait(0)


@gluon.jit
def matmul(a_desc, b_desc, out_desc):
    a_ring = gl.allocate_shared_memory(a_desc.dtype, [3] + a_desc.block_type.shape, a_desc.layout)
    b_ring = gl.allocate_shared_memory(b_desc.dtype, [3] + b_desc.block_type.shape, b_desc.layout)
    ring = gl.allocate_shared_memory(out_desc.dtype, [2] + out_desc.block_type.shape, out_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [3, 1], hopper.mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [3, 1], hopper.mbarrier.MBarrierLayout())
    order = gl.allocate_shared_memory(gl.int64, [2, 1], hopper.mbarrier.MBarrierLayout())
    for i in gl.static_range(3):
        hopper.mbarrier.init(full.index(i), count=1)
    for i in gl.static_range(3):
        hopper.mbarrier.init(empty.index(i), count=1)
    for i in gl.static_range(2):
        hopper.mbarrier.init(order.index(i), count=1)
    gl.warp_specialize(
        [
            (matmul_dots, (out_desc, a_ring, b_ring, full, empty, order, ring, 0)),
            (matmul_dots, (out_desc, a_ring, b_ring, full, empty, order, ring, 1)),
            (matmul_load, (a_desc, b_desc, a_ring, b_ring, full, empty)),
        ],
        [4, 1],
        [232, 40],
    )
