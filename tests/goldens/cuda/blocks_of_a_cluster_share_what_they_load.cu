// a schedule
//
// in0: (4096, 4096) bfloat16
// in1: (4096, 4096) bfloat16
// out0: (4096, 4096) bfloat16
//
// kernel dot_4096x4096: grid m.0 in 16, n.0 in 22, m.0 in groups of 8, persistent on 66 programs  [warps 8, stages 4, cluster 2, 1 more to load]
//   acc: (m 256, n 192) float32 = 0
//   for k.0 in 64:  # 4 stages
//     in0: (m 256, k 64) bfloat16 = load in0[m.0*256 : +256, k.0*64 : +64]  (descriptor)
//     in1: (n 192, k 64) bfloat16 = load in1[n.0*192 : +192, k.0*64 : +64]  (descriptor)
//     acc += dot(in0, in1) over k
//   store out0[m.0*256 : +256, n.0*192 : +192] = acc  (descriptor)

using int64 = long long;
using uint64 = unsigned long long;
using uint32 = unsigned int;
using int8 = signed char;
using uint8 = unsigned char;
using int16 = short;
struct float16 { unsigned short bits; };
struct bfloat16 { unsigned short bits; };
struct float8_e4m3fn { unsigned char bits; };
struct float8_e5m2 { unsigned char bits; };
struct truth { unsigned char bits; };

__device__ __forceinline__ float widened(float x) { return x; }

__device__ __forceinline__ float widened(bfloat16 x) { return __uint_as_float(uint32(x.bits) << 16); }

__device__ __forceinline__ void narrowed(float x, float& y) { y = x; }

__device__ __forceinline__ void narrowed(float x, bfloat16& y) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
}

// What is moved at once.
template <int bytes> struct Words { struct type {}; };  // Of no use, but named where overloads are chosen among.
template <> struct Words<1> { using type = unsigned char; };
template <> struct Words<2> { using type = unsigned short; };
template <> struct Words<4> { using type = unsigned int; };
template <> struct Words<8> { using type = uint2; };
template <> struct Words<16> { using type = uint4; };
template <typename T, int count> union Vector {
    using Type = typename Words<sizeof(T) * count>::type;
    Type words;
    T at[count];
    unsigned int pairs[sizeof(T) * count / 4 + 1];
    __device__ Vector() {}
};
template <int count, int apart, typename T, typename H>
__device__ __forceinline__ void unpack(H* to, const Vector<T, count>& v) {
    #pragma unroll
    for (int i = 0; i < count; ++i) to[i * apart] = widened(v.at[i]);
}
template <int count, int apart, typename T, typename H>
__device__ __forceinline__ void pack(const H* from, Vector<T, count>& v) {
    #pragma unroll
    for (int i = 0; i < count; ++i) narrowed(from[i * apart], v.at[i]);
}

template <int count, int apart>
__device__ __forceinline__ void unpack(float* to, const Vector<bfloat16, count>& v) {
    if constexpr (count == 1) to[0] = widened(v.at[0]);
    #pragma unroll
    for (int i = 0; i + 1 < count; i += 2) {
        to[i * apart] = __uint_as_float(v.pairs[i / 2] << 16);
        to[(i + 1) * apart] = __uint_as_float(v.pairs[i / 2] & 0xffff0000u);
    }
}

template <int count, int apart>
__device__ __forceinline__ void pack(const float* from, Vector<bfloat16, count>& v) {
    if constexpr (count == 1) narrowed(from[0], v.at[0]);
    #pragma unroll
    for (int i = 0; i + 1 < count; i += 2)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v.pairs[i / 2]) : "f"(from[(i + 1) * apart]), "f"(from[i * apart]));
}

struct __align__(64) TensorMap { unsigned char bytes[128]; };

// Barriers: a count of arrivals, and of bytes that copies still bring; a phase ends when both are there.
__device__ __forceinline__ void barrier_init(uint32 barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_expect(uint32 barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_arrive_at(uint32 barrier, int block) {
    asm volatile(
        "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;"
        "  mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(barrier), "r"(block) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32 barrier, int parity) {
    asm volatile(
        "{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra again; }" ::"r"(
            barrier), "r"(parity) : "memory");
}

__device__ __forceinline__ void barriers_made() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// Threads of a cluster, or of a warp group, meet. Warps that do different things share the registers out.
__device__ __forceinline__ void cluster_meets() {
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}
__device__ __forceinline__ void group_meets(int group) {
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}
template <int count> __device__ __forceinline__ void fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count> __device__ __forceinline__ void more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

// Where the operand of a dot begins, as a matrix descriptor.
__device__ __forceinline__ uint64 matrix(uint32 at, uint64 layout) { return layout | (uint64)((at & 0x3ffff) >> 4); }
__device__ __forceinline__ void dots_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void dots_issued() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int in_flight> __device__ __forceinline__ void dots_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(in_flight) : "memory");
}
// What dots write in the meantime is not moved to other registers.
template <int count> __device__ __forceinline__ void settled(float (&sums)[count]) {
    #pragma unroll
    for (int i = 0; i < count; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}
template <int count> __device__ __forceinline__ void settled(int (&sums)[count]) {
    #pragma unroll
    for (int i = 0; i < count; ++i) asm volatile("" : "+r"(sums[i])::"memory");
}

// Stores of tiles that lie in shared memory.
__device__ __forceinline__ void stores_see_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void stores_issued() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int on_their_way> __device__ __forceinline__ void stores_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(on_their_way) : "memory");
}

__device__ __forceinline__ void load_tile(uint32 to, const TensorMap& map, uint32 barrier, int at_0, int at_1) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4}], [%2];" ::"r"(to), "l"(&map), "r"(barrier),
        "r"(at_0), "r"(at_1) : "memory");
}

__device__ __forceinline__ void load_tile_to(uint32 to, const TensorMap& map, uint32 barrier, unsigned short blocks, int at_0, int at_1) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%4, %5}], [%2], %3;" ::"r"(to), "l"(&map), "r"(barrier),
        "h"(blocks), "r"(at_0), "r"(at_1) : "memory");
}

__device__ __forceinline__ void store_tile(const TensorMap& map, uint32 from, int at_0, int at_1) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
        "r"(from), "r"(at_0), "r"(at_1) : "memory");
}

// Four matrices of 8 x 8 to shared memory, the rows of each to where eight of the lanes say.
template <bool transposed> __device__ __forceinline__ void store_matrices(
    bfloat16, uint32 to, float a0, float a1, float b0, float b1, float c0, float c1, float d0, float d1) {
    uint32 a, b, c, d;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(a) : "f"(a1), "f"(a0));
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(b) : "f"(b1), "f"(b0));
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(c) : "f"(c1), "f"(c0));
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(d1), "f"(d0));
    if (transposed)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a),
            "r"(b), "r"(c), "r"(d) : "memory");
    else
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b),
            "r"(c), "r"(d) : "memory");
}

// Sums of a warp group to shared memory: each of `rows` rows to a swizzled one of `columns` elements.
template <typename T, int rows, int columns, int down, int across>
__device__ __forceinline__ void write_rows(uint32 to, const float* x, int warp, int lane) {
    constexpr int row_bytes = columns * 2;
    #pragma unroll
    for (int row = 0; row < rows; row += 64)
        #pragma unroll
        for (int column = 0; column < columns; column += 16) {
            const float* y = x + row / 32 * down + column / 4 * across;
            const int line = row + warp * 16 + lane % 16;
            const int place = column / 8 + lane / 16 ^ line * row_bytes / 128 % (row_bytes / 16);
            store_matrices<false>(T(), to + line * row_bytes + place * 16, y[0], y[across], y[down], y[down + across],
                y[2 * across], y[3 * across], y[down + 2 * across], y[down + 3 * across]);
        }
}

// sums (64 x 192) = a b, or where something is there that is added to, += a b
__device__ __forceinline__ void dot_192_kk(float* sums, uint64 a, uint64 b, int added) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %98, 0;"
        "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
        "}, %96, %97, p, 1, 1, 0, 0; }"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[48]), "+f"(sums[49]),
          "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[50]), "+f"(sums[51]),
          "+f"(sums[4]), "+f"(sums[5]), "+f"(sums[52]), "+f"(sums[53]),
          "+f"(sums[6]), "+f"(sums[7]), "+f"(sums[54]), "+f"(sums[55]),
          "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[56]), "+f"(sums[57]),
          "+f"(sums[10]), "+f"(sums[11]), "+f"(sums[58]), "+f"(sums[59]),
          "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[60]), "+f"(sums[61]),
          "+f"(sums[14]), "+f"(sums[15]), "+f"(sums[62]), "+f"(sums[63]),
          "+f"(sums[16]), "+f"(sums[17]), "+f"(sums[64]), "+f"(sums[65]),
          "+f"(sums[18]), "+f"(sums[19]), "+f"(sums[66]), "+f"(sums[67]),
          "+f"(sums[20]), "+f"(sums[21]), "+f"(sums[68]), "+f"(sums[69]),
          "+f"(sums[22]), "+f"(sums[23]), "+f"(sums[70]), "+f"(sums[71]),
          "+f"(sums[24]), "+f"(sums[25]), "+f"(sums[72]), "+f"(sums[73]),
          "+f"(sums[26]), "+f"(sums[27]), "+f"(sums[74]), "+f"(sums[75]),
          "+f"(sums[28]), "+f"(sums[29]), "+f"(sums[76]), "+f"(sums[77]),
          "+f"(sums[30]), "+f"(sums[31]), "+f"(sums[78]), "+f"(sums[79]),
          "+f"(sums[32]), "+f"(sums[33]), "+f"(sums[80]), "+f"(sums[81]),
          "+f"(sums[34]), "+f"(sums[35]), "+f"(sums[82]), "+f"(sums[83]),
          "+f"(sums[36]), "+f"(sums[37]), "+f"(sums[84]), "+f"(sums[85]),
          "+f"(sums[38]), "+f"(sums[39]), "+f"(sums[86]), "+f"(sums[87]),
          "+f"(sums[40]), "+f"(sums[41]), "+f"(sums[88]), "+f"(sums[89]),
          "+f"(sums[42]), "+f"(sums[43]), "+f"(sums[90]), "+f"(sums[91]),
          "+f"(sums[44]), "+f"(sums[45]), "+f"(sums[92]), "+f"(sums[93]),
          "+f"(sums[46]), "+f"(sums[47]), "+f"(sums[94]), "+f"(sums[95])
        : "l"(a), "l"(b), "r"(added));
}

extern "C" __global__ void __launch_bounds__(384, 1)
dot_4096x4096(
    const __grid_constant__ TensorMap in0_map,
    const __grid_constant__ TensorMap in1_map,
    const __grid_constant__ TensorMap out0_map) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const uint32 shared_at = __cvta_generic_to_shared(shared);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const uint32 ring = shared_at;
    const uint32 full = shared_at + 196608;
    const uint32 empty = shared_at + 196640;
    const uint32 order = shared_at + 196672;
    const int group = __shfl_sync(0xffffffff, threadIdx.x / 128, 0), thread = threadIdx.x % 128;
    const int block_ = blockIdx.x % 2;
    if (threadIdx.x == 256) {
        for (int i = 0; i < 4; ++i) barrier_init(full + 8 * i, 1);
        for (int i = 0; i < 4; ++i) barrier_init(empty + 8 * i, 2);
        for (int i = 0; i < 2; ++i) barrier_init(order + 8 * i, 1);
        barriers_made();
    }
    cluster_meets();
    if (group == 2) {
        fewer_registers<24>();
        if (thread == 0) {
            int slot = 0, parity = 1;
            for (int tile = int(blockIdx.x) / 2; tile < 352; tile += 66) {
                const int first = tile / 176 * 8;
                const int m_0 = first + tile % 176 % 8;
                const int n_0 = tile % 176 / 8;
                #pragma unroll 1
                for (int k_0 = 0; k_0 < 64; ++k_0) {
                    barrier_wait(empty + 8 * slot, parity);
                    barrier_expect(full + 8 * slot, 40960);
                    const uint32 here = ring + slot * 40960;
                    load_tile(here, in0_map, full + 8 * slot, k_0 * 64, block_ * 128 + m_0 * 256);
                    load_tile_to(here + 16384 + block_ * 12288, in1_map, full + 8 * slot, 3, k_0 * 64, block_ * 96 + n_0 * 192);
                    if (++slot == 4) slot = 0, parity ^= 1;
                }
            }
            for (int i = 0; i < 4; ++i) {
                barrier_wait(empty + 8 * slot, parity);
                if (++slot == 4) slot = 0, parity ^= 1;
            }
        }
    }
    else {
        more_registers<240>();
        const int half = group;
        int slot = half * 0, parity = half * 0;
        int turn = 1 - half;
        for (int tile = int(blockIdx.x) / 2 + half * 66; tile < 352; tile += 132) {
            const int first = tile / 176 * 8;
            const int m_0 = first + tile % 176 % 8;
            const int n_0 = tile % 176 / 8;
            float acc[192];
            #pragma unroll
            for (int i = 0; i < 192; ++i) acc[i] = 0;
            barrier_wait(order + 8 * half, turn);
            turn ^= 1;
            int last = slot;
            #pragma unroll 1
            for (int k_0 = 0; k_0 < 64; ++k_0) {
                barrier_wait(full + 8 * slot, parity);
                const uint32 here = ring + slot * 40960;
                settled(acc);
                dots_begin();
                {
                    const uint64 a = matrix(here, 0x4000004000010000ull);
                    const uint64 b = matrix(here + 16384, 0x4000004000010000ull);
                    dot_192_kk(acc, a, b, 1);
                    dot_192_kk(acc + 96, a + 512, b, 1);
                    dot_192_kk(acc, a + 2, b + 2, 1);
                    dot_192_kk(acc + 96, a + 514, b + 2, 1);
                    dot_192_kk(acc, a + 4, b + 4, 1);
                    dot_192_kk(acc + 96, a + 516, b + 4, 1);
                    dot_192_kk(acc, a + 6, b + 6, 1);
                    dot_192_kk(acc + 96, a + 518, b + 6, 1);
                }
                dots_issued();
                dots_wait<1>();
                settled(acc);
                if (k_0 > 0 && thread < 2) barrier_arrive_at(empty + 8 * last, thread);
                last = slot;
                if (++slot == 4) slot = 0, parity ^= 1;
            }
            if (thread == 0) barrier_arrive(order + 8 * (1 - half));
            dots_wait<0>();
            settled(acc);
            if (thread < 2) barrier_arrive_at(empty + 8 * last, thread);
            slot += 0, parity ^= 0;
            if (slot >= 4) slot -= 4, parity ^= 1;
            #pragma unroll
            for (int piece = 0; piece < 3; ++piece) {
                const int to = 163840 + half * 16384;
                if (thread == 0) stores_read<0>();
                group_meets(half);
                write_rows<bfloat16, 128, 64, 48, 1>(shared_at + to, acc + piece * 16, warp, lane);
                stores_see_shared();
                group_meets(half);
                if (thread == 0) {
                    store_tile(out0_map, shared_at + to, n_0 * 192 + piece * 64, block_ * 128 + m_0 * 256);
                    stores_issued();
                }
            }
            if (thread == 0 && tile + 132 >= 352) stores_read<0>();
        }
    }
}
