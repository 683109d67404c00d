# a schedule
#
# a: (4096, 256) bfloat16
# b: (512, 256) bfloat16
# bias: (512,) bfloat16
# residual: (4096, 512) bfloat16
# out: (4096, 512) bfloat16
#
# kernel matmul: grid m.0 in 32, n.0 in 2, m.0 in groups of 8, persistent on 64 programs  [warps 8, stages 1, 1 more to load]
#   acc: (m 128, n 256) float32 = 0
#   for k.0 in 4:  # 3 stages
#     a: (m 128, k 64) bfloat16 = load a[m.0*128 : +128, k.0*64 : +64]  (descriptor)
#     b: (n 256, k 64) bfloat16 = load b[n.0*256 : +256, k.0*64 : +64]  (descriptor)
#     acc += dot(a, b) over k
#   bias0: (n 256) bfloat16 = load bias[n.0*256 : +256]
#   biased0: (m 128, n 256) float32 = add(acc, bias0)
#   positive0: (m 128, n 256) float32 = maximum(biased0, 0)
#   residual0: (m 128, n 256) bfloat16 = load residual[m.0*128 : +128, n.0*256 : +256]
#   result0: (m 128, n 256) float32 = add(positive0, residual0)
#   store out[m.0*128 : +128, n.0*256 : +256] = result0  (descriptor)
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
    tile = gl.program_id(0)
    first = tile // 16 * 8
    m_0 = first + tile % 16 % 8
    n_0 = tile % 16 // 8
    for k_0 in range(4):
        slot = step % 3
        hopper.mbarrier.wait(empty.index(slot), step // 3 & 1 ^ 1)
        hopper.mbarrier.expect(full.index(slot), 49152)
        load_tile(a_desc, [m_0 * 128, k_0 * 64], full.index(slot), a_ring.index(slot))
        load_tile(b_desc, [n_0 * 256, k_0 * 64], full.index(slot), b_ring.index(slot))
        step += 1


@gluon.jit
def matmul_finish(acc, bias_ptr, residual_ptr, out_desc, m_0, n_0, ring, half: gl.constexpr):
    offs_n = n_0 * 256 + gl.arange(0, 256)
    offs_m = half * 64 + m_0 * 128 + gl.arange(0, 64)
    bias0 = gl.load(bias_ptr + offs_n)
    biased0 = acc + bias0.to(gl.float32)[None, :]
    positive0 = gl.maximum(biased0, 0.0, tl.PropagateNan.ALL)
    residual0 = gl.load(residual_ptr + offs_m[:, None] * 512 + offs_n[None, :])
    result0 = positive0 + residual0.to(gl.float32)
    hopper.tma.store_wait(0)
    piece = ring.index(half * 1 + 0)
    piece.store(result0.to(gl.bfloat16))
    hopper.fence_async_shared()
    store_tile(out_desc, [half * 64 + m_0 * 128, n_0 * 256], piece)


@gluon.jit
def matmul_dots(bias_ptr, residual_ptr, out_desc, a_ring, b_ring, full, empty, ring, half: gl.constexpr):
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 256, 16])
    step = 0
    tile = gl.program_id(0)
    first = tile // 16 * 8
    m_0 = first + tile % 16 % 8
    n_0 = tile % 16 // 8
    acc = gl.full([64, 256], 0.0, gl.float32, layout)
    for k_0 in range(4):
        slot = step % 3
        hopper.mbarrier.wait(full.index(slot), step // 3 & 1)
        a = a_ring.index(slot).slice(half * 64, 64)
        b = b_ring.index(slot).permute((1, 0))
        acc = hopper.warpgroup_mma(a, b, acc, is_async=True)
        acc = hopper.warpgroup_mma_wait(1, deps=(acc,))
        hopper.mbarrier.arrive(empty.index((step + 2) % 3), pred=k_0 > 0)
        step += 1
    acc = hopper.warpgroup_mma_wait(0, deps=(acc,))
    hopper.mbarrier.arrive(empty.index((step + 2) % 3))
    matmul_finish(acc, bias_ptr, residual_ptr, out_desc, m_0, n_0, ring, half)
    hopper.tma.store_wait(0)


@gluon.jit
def matmul(bias_ptr, residual_ptr, a_desc, b_desc, out_desc):
    a_ring = gl.allocate_shared_memory(a_desc.dtype, [3] + a_desc.block_type.shape, a_desc.layout)
    b_ring = gl.allocate_shared_memory(b_desc.dtype, [3] + b_desc.block_type.shape, b_desc.layout)
    ring = gl.allocate_shared_memory(out_desc.dtype, [2] + out_desc.block_type.shape, out_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [3, 1], hopper.mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [3, 1], hopper.mbarrier.MBarrierLayout())
    for i in gl.static_range(3):
        hopper.mbarrier.init(full.index(i), count=1)
    for i in gl.static_range(3):
        hopper.mbarrier.init(empty.index(i), count=2)
    gl.warp_specialize(
        [
            (matmul_dots, (bias_ptr, residual_ptr, out_desc, a_ring, b_ring, full, empty, ring, 0)),
            (matmul_dots, (bias_ptr, residual_ptr, out_desc, a_ring, b_ring, full, empty, ring, 1)),
            (matmul_load, (a_desc, b_desc, a_ring, b_ring, full, empty)),
        ],
        [4, 1],
        [232, 40],
    )
