# a schedule
#
# a: (512, 256) float32
# b: (256, 512) float32
# out: (512, 512) float32
#
# kernel matmul: grid m.0 in 2, n.0 in 4, persistent on 2 programs  [warps 8, stages 1, 1 more to load]
#   acc: (n 128, m 256) float32 = 0
#   for k.0 in 8:  # 3 stages
#     a: (m 256, k 32) float32 = load a[m.0*256 : +256, k.0*32 : +32]  (descriptor)
#     b: (k 32, n 128) float32 = load b[k.0*32 : +32, n.0*128 : +128]  (descriptor)
#     acc += dot(a, b) over k
#   store out[m.0*256 : +256, n.0*128 : +128] = acc  (as m, n)
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

load_tile = getattr(hopper.tma, "async_load", None) or hopper.tma.async_copy_global_to_shared
store_tile = getattr(hopper.tma, "async_store", None) or hopper.tma.async_copy_shared_to_global


@gluon.jit
def matmul_load(b_desc, a_desc, a_ring, b_ring, full, empty):
    step = 0
    for tile in range(gl.program_id(0), 8, 2):
        m_0 = tile // 4
        n_0 = tile % 4
        for k_0 in range(8):
            slot = step % 3
            hopper.mbarrier.wait(empty.index(slot), step // 3 & 1 ^ 1)
            hopper.mbarrier.expect(full.index(slot), 49152)
            load_tile(b_desc, [k_0 * 32, n_0 * 128], full.index(slot), a_ring.index(slot))
            load_tile(a_desc, [m_0 * 256, k_0 * 32], full.index(slot), b_ring.index(slot))
            step += 1


@gluon.jit
def matmul_finish(acc, out_ptr, m_0, n_0, half: gl.constexpr):
    offs_m = m_0 * 256 + gl.arange(0, 256)
    offs_n = half * 64 + n_0 * 128 + gl.arange(0, 64)
    gl.store(out_ptr + offs_m[:, None] * 512 + offs_n[None, :], gl.permute(acc, [1, 0]))


@gluon.jit
def matmul_dots(out_ptr, a_ring, b_ring, full, empty, half: gl.constexpr):
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 256, 8])
    operand: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=layout, k_width=1)
    step = 0
    for tile in range(gl.program_id(0), 8, 2):
        m_0 = tile // 4
        n_0 = tile % 4
        acc = gl.full([64, 256], 0.0, gl.float32, layout)
        hopper.mbarrier.wait(full.index(step % 3), step // 3 & 1)
        a = a_ring.index(step % 3).slice(half * 64, 64, 1).permute((1, 0)).load(operand)
        for k_0 in range(8 - 1):
            acc = hopper.warpgroup_mma(a, b_ring.index(step % 3).permute((1, 0)), acc, is_async=True)
            hopper.mbarrier.wait(full.index((step + 1) % 3), (step + 1) // 3 & 1)
            next_a = a_ring.index((step + 1) % 3).slice(half * 64, 64, 1).permute((1, 0)).load(operand)
            acc, a = hopper.warpgroup_mma_wait(0, deps=(acc, a))
            hopper.mbarrier.arrive(empty.index(step % 3))
            a = next_a
            step += 1
        acc = hopper.warpgroup_mma(a, b_ring.index(step % 3).permute((1, 0)), acc, is_async=True)
        acc, a = hopper.warpgroup_mma_wait(0, deps=(acc, a))
        hopper.mbarrier.arrive(empty.index(step % 3))
        step += 1
        matmul_finish(acc, out_ptr, m_0, n_0, half)


@gluon.jit
def matmul(out_ptr, a_desc, b_desc):
    a_ring = gl.allocate_shared_memory(b_desc.dtype, [3] + b_desc.block_type.shape, b_desc.layout)
    b_ring = gl.allocate_shared_memory(a_desc.dtype, [3] + a_desc.block_type.shape, a_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [3, 1], hopper.mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [3, 1], hopper.mbarrier.MBarrierLayout())
    for i in gl.static_range(3):
        hopper.mbarrier.init(full.index(i), count=1)
    for i in gl.static_range(3):
        hopper.mbarrier.init(empty.index(i), count=2)
    gl.warp_specialize(
        [
            (matmul_dots, (out_ptr, a_ring, b_ring, full, empty, 0)),
            (matmul_dots, (out_ptr, a_ring, b_ring, full, empty, 1)),
            (matmul_load, (b_desc, a_desc, a_ring, b_ring, full, empty)),
        ],
        [4, 1],
        [232, 40],
    )
