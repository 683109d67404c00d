# a schedule
#
# q: (4, 512, 64) bfloat16
# k: (4, 512, 64) bfloat16
# v: (4, 512, 64) bfloat16
# out: (4, 512, 64) bfloat16
#
# kernel attention: grid b.0 in 4, m.0 in 4  [warps 8, stages 1, 1 more to load]
#   q: (m 128, d 64) bfloat16 = load q[b.0, m.0*128 : +128, 0 : +64]  (descriptor)
#   top: (m 128) float32 = -1e+30
#   total: (m 128) float32 = 0
#   acc: (m 128, e 64) float32 = 0
#   for c.0 in 8:  # 3 stages
#     k: (c 64, d 64) bfloat16 = load k[b.0, c.0*64 : +64, 0 : +64]  (descriptor)
#     s: (m 128, c 64) float32 = 0
#     s += dot(q, k) over d
#     s: (m 128, c 64) float32 = mul(s, 0.180337)
#     part: (m 128) float32 = max of s over c
#     next: (m 128) float32 = maximum(top, part)
#     rescale: (m 128) float32 = sub(top, next)
#     rescale: (m 128) float32 = exp2_normal(rescale)
#     p: (m 128, c 64) float32 = sub(s, next)
#     p: (m 128, c 64) float32 = exp2_normal(p)
#     sum: (m 128) float32 = sum of p over c
#     total: (m 128) float32 = mul(total, rescale)
#     total: (m 128) float32 = add(total, sum)
#     acc: (m 128, e 64) float32 = mul(acc, rescale)
#     p16: (m 128, c 64) bfloat16 = cast(p)
#     v: (c 64, e 64) bfloat16 = load v[b.0, c.0*64 : +64, 0 : +64]  (descriptor)
#     acc += dot(p16, v) over c
#     top: (m 128) float32 = maximum(top, next)
#   acc: (m 128, e 64) float32 = div(acc, total)
#   store out[b.0, m.0*128 : +128, 0 : +64] = acc  (descriptor)
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

load_tile = getattr(hopper.tma, "async_load", None) or hopper.tma.async_copy_global_to_shared
store_tile = getattr(hopper.tma, "async_store", None) or hopper.tma.async_copy_shared_to_global


@triton.jit
def _max(a, b):
    return tl.maximum(a, b, tl.PropagateNan.ALL)


@gluon.jit
def attention_load(q_desc, k_desc, v_desc, q_held, held_full, held_empty, k_ring, k_full, k_empty, v_ring, v_full, v_empty, order):
    tile = gl.program_id(0)
    b_0 = tile // 4
    m_0 = tile % 4
    step = 0
    turn = 0
    hopper.mbarrier.wait(held_empty.index(0), turn & 1 ^ 1)
    hopper.mbarrier.expect(held_full.index(0), 16384)
    load_tile(q_desc, [b_0, m_0 * 128, 0], held_full.index(0), q_held)
    turn += 1
    for c_0 in range(8):
        hopper.mbarrier.wait(k_empty.index(step % 3), step // 3 & 1 ^ 1)
        hopper.mbarrier.expect(k_full.index(step % 3), 8192)
        load_tile(k_desc, [b_0, c_0 * 64, 0], k_full.index(step % 3), k_ring.index(step % 3))
        hopper.mbarrier.wait(v_empty.index(step % 3), step // 3 & 1 ^ 1)
        hopper.mbarrier.expect(v_full.index(step % 3), 8192)
        load_tile(v_desc, [b_0, c_0 * 64, 0], v_full.index(step % 3), v_ring.index(step % 3))
        step += 1


@gluon.jit
def attention_finish(total, acc, out_desc, b_0, m_0, ring, half: gl.constexpr):
    by_e: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16])
    by_c: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16])
    total = gl.convert_layout(total, gl.SliceLayout(1, by_e))
    total_inverse = 1.0 / total
    acc = acc * total_inverse[:, None]
    hopper.tma.store_wait(0)
    piece = ring.index(half * 1 + 0)
    piece.store(acc.to(gl.bfloat16).reshape([1, 64, 64]))
    hopper.fence_async_shared()
    store_tile(out_desc, [b_0, half * 64 + m_0 * 128, 0], piece)


@gluon.jit
def attention_dots(out_desc, q_held, held_full, held_empty, k_ring, k_full, k_empty, v_ring, v_full, v_empty, order, ring, half: gl.constexpr):
    by_e: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16])
    by_c: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16])
    tile = gl.program_id(0)
    b_0 = tile // 4
    m_0 = tile % 4
    step = 0
    turn = 0
    round = 1 if half == 0 else 0
    hopper.mbarrier.wait(held_full.index(0), turn & 1)
    turn += 1
    top = gl.full([64], -1e+30, gl.float32, gl.SliceLayout(1, by_c))
    total = gl.full([64], 0.0, gl.float32, gl.SliceLayout(1, by_c))
    acc = gl.full([64, 64], 0.0, gl.float32, by_e)
    for c_0 in range(8):
        s = gl.full([64, 64], 0.0, gl.float32, by_c)
        hopper.mbarrier.wait(order.index(half), round)
        round ^= 1
        hopper.mbarrier.wait(k_full.index(step % 3), step // 3 & 1)
        s = hopper.warpgroup_mma(
            q_held.reshape([128, 64]).slice(half * 64, 64),
            k_ring.index(step % 3).reshape([64, 64]).permute((1, 0)),
            s,
            use_acc=False,
            is_async=True,
        )
        hopper.mbarrier.arrive(order.index((half + 1) % 2))
        s = hopper.warpgroup_mma_wait(0, deps=(s,))
        hopper.mbarrier.arrive(k_empty.index(step % 3))
        s = s * 0.18033688011112042
        part = gl.reduce(s, 1, _max)
        next = gl.maximum(top, part, tl.PropagateNan.ALL)
        rescale = top - next
        rescale = gl.exp2(rescale)
        p = s - next[:, None]
        p = gl.exp2(p)
        sum = gl.sum(p, axis=1)
        total = total * rescale
        total = total + sum
        acc = acc * gl.convert_layout(rescale, gl.SliceLayout(1, by_e))[:, None]
        p16 = p.to(gl.bfloat16)
        rows_0 = gl.convert_layout(p16, gl.DotOperandLayout(operand_index=0, parent=by_e, k_width=2))
        hopper.mbarrier.wait(v_full.index(step % 3), step // 3 & 1)
        acc = hopper.warpgroup_mma(rows_0, v_ring.index(step % 3).reshape([64, 64]), acc, is_async=True)
        acc, rows_0 = hopper.warpgroup_mma_wait(0, deps=(acc, rows_0))
        hopper.mbarrier.arrive(v_empty.index(step % 3))
        top = gl.maximum(top, next, tl.PropagateNan.ALL)
        step += 1
    hopper.mbarrier.arrive(held_empty.index(0))
    attention_finish(total, acc, out_desc, b_0, m_0, ring, half)
    hopper.tma.store_wait(0)


@gluon.jit
def attention(q_desc, k_desc, v_desc, out_desc):
    q_held = gl.allocate_shared_memory(q_desc.dtype, q_desc.block_type.shape, q_desc.layout)
    k_ring = gl.allocate_shared_memory(k_desc.dtype, [3] + k_desc.block_type.shape, k_desc.layout)
    v_ring = gl.allocate_shared_memory(v_desc.dtype, [3] + v_desc.block_type.shape, v_desc.layout)
    ring = gl.allocate_shared_memory(out_desc.dtype, [2] + out_desc.block_type.shape, out_desc.layout)
    held_full = gl.allocate_shared_memory(gl.int64, [1, 1], hopper.mbarrier.MBarrierLayout())
    for i in gl.static_range(1):
        hopper.mbarrier.init(held_full.index(i), count=1)
    held_empty = gl.allocate_shared_memory(gl.int64, [1, 1], hopper.mbarrier.MBarrierLayout())
    for i in gl.static_range(1):
        hopper.mbarrier.init(held_empty.index(i), count=2)
    k_full = gl.allocate_shared_memory(gl.int64, [3, 1], hopper.mbarrier.MBarrierLayout())
    for i in gl.static_range(3):
        hopper.mbarrier.init(k_full.index(i), count=1)
    k_empty = gl.allocate_shared_memory(gl.int64, [3, 1], hopper.mbarrier.MBarrierLayout())
    for i in gl.static_range(3):
        hopper.mbarrier.init(k_empty.index(i), count=2)
    v_full = gl.allocate_shared_memory(gl.int64, [3, 1], hopper.mbarrier.MBarrierLayout())
    for i in gl.static_range(3):
        hopper.mbarrier.init(v_full.index(i), count=1)
    v_empty = gl.allocate_shared_memory(gl.int64, [3, 1], hopper.mbarrier.MBarrierLayout())
    for i in gl.static_range(3):
        hopper.mbarrier.init(v_empty.index(i), count=2)
    order = gl.allocate_shared_memory(gl.int64, [2, 1], hopper.mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        hopper.mbarrier.init(order.index(i), count=1)
    gl.warp_specialize(
        [
            (attention_dots, (out_desc, q_held, held_full, held_empty, k_ring, k_full, k_empty, v_ring, v_full, v_empty, order, ring, 0)),
            (attention_dots, (out_desc, q_held, held_full, held_empty, k_ring, k_full, k_empty, v_ring, v_full, v_empty, order, ring, 1)),
            (attention_load, (q_desc, k_desc, v_desc, q_held, held_full, held_empty, k_ring, k_full, k_empty, v_ring, v_full, v_empty, order)),
        ],
        [4, 1],
        [240, 24],
    )
