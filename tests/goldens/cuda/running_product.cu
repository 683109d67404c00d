// a schedule
//
// in0: (64, 2048) float32
// out0: (64, 2048) float32
//
// kernel scan_64x2048: grid r.0 in 64  [warps 4, stages 1]
//   in0: (r 1, c 2048) float32 = load in0[r.0 : +1, 0 : +2048]
//   t: (r 1, c 2048) float32 = mul(in0, 0.01)
//   out0_each: (r 1, c 2048) float32 = add(t, 1)
//   out0: (r 1, c 2048) float32 = scan of out0_each along c by mul(out0_left, out0_right)
//   store out0[r.0 : +1, 0 : +2048] = out0

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

__device__ __forceinline__ void narrowed(float x, float& y) { y = x; }

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

// Neighbours in memory to registers that are so far apart; where it is not inside, 0 or what is given.
template <int count, int apart, typename T, typename H>
__device__ __forceinline__ void load(H* to, const T* from) {
    Vector<T, count> v;
    v.words = *reinterpret_cast<const typename Vector<T, count>::Type*>(from);
    unpack<count, apart>(to, v);
}
template <int count, int apart, typename T, typename H>
__device__ __forceinline__ void load(H* to, const T* from, bool inside) {
    Vector<T, count> v;
    v.words = {};
    if (inside) v.words = *reinterpret_cast<const typename Vector<T, count>::Type*>(from);
    unpack<count, apart>(to, v);
}
template <int count, int apart, typename T, typename H>
__device__ __forceinline__ void load(H* to, const T* from, bool inside, H otherwise) {
    load<count, apart>(to, from, inside);
    #pragma unroll
    for (int i = 0; i < count; ++i) to[i * apart] = inside ? to[i * apart] : otherwise;
}

template <int count, int apart, typename T, typename H>
__device__ __forceinline__ void store(T* to, const H* from) {
    Vector<T, count> v;
    pack<count, apart>(from, v);
    *reinterpret_cast<typename Vector<T, count>::Type*>(to) = v.words;
}

__device__ __forceinline__ void join_scan_64x2048_out0(const float left_0, float& right_0) {
    const float t0 = left_0 * right_0;
    const float result_0 = t0;
    right_0 = result_0;
}

extern "C" __global__ void __launch_bounds__(128, 1)
scan_64x2048(
    const float* __restrict__ in0_ptr,
    float* __restrict__ out0_ptr) {
    extern __shared__ __align__(1024) unsigned char shared[];
    constexpr int small_1 = 0;
    const uint32 shared_at = __cvta_generic_to_shared(shared);
    __builtin_assume(threadIdx.x < 128);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int block = blockIdx.x;
    const int r_0 = block;
    const int own_c = lane * 4 + warp * 128;
    float in0[16];
    const float* const in0_at = in0_ptr + r_0 * 2048 + own_c;
    #pragma unroll
    for (int r_c = 0; r_c < 16; r_c += 4)
        load<4, 1>(in0 + r_c, in0_at + r_c % 4 + r_c / 4 * 512);
    float t[16];
    float out0_each[16];
    #pragma unroll
    for (int r_c = 0; r_c < 16; ++r_c) {
        t[r_c] = in0[r_c] * 0.009999999776482582f;
        out0_each[r_c] = t[r_c] + 1.0f;
    }
    float out0[16];
    #pragma unroll
    for (int r_c = 0; r_c < 16; ++r_c)
        out0[r_c] = out0_each[r_c];
    float out0_total[16];
    #pragma unroll
    for (int r_c = 0; r_c < 16; ++r_c)
        out0_total[r_c] = out0[r_c];
    #pragma unroll
    for (int g = 0; g < 4; ++g) {
        float run_0 = out0_total[g * 4];
        #pragma unroll
        for (int j = 1; j < 4; ++j) {
            join_scan_64x2048_out0(run_0, out0[(g * 4 + j)]);
            float next_0 = out0_total[g * 4 + j];
            join_scan_64x2048_out0(run_0, next_0);
            run_0 = next_0;
        }
        out0_total[g] = run_0;
    }
    #pragma unroll
    for (int g = 0; g < 4; ++g) {
        float run_0 = out0_total[g];
        #pragma unroll
        for (int apart = 1; apart < 32; apart *= 2) {
            const float left_0 = __shfl_up_sync(0xffffffffu, run_0, apart * 1);
            if (lane >= apart) join_scan_64x2048_out0(left_0, run_0);
        }
        const float left_0 = __shfl_up_sync(0xffffffffu, run_0, 1);
        if (lane > 0) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) join_scan_64x2048_out0(left_0, out0[g * 4 + i]);
        }
        out0_total[g] = __shfl_sync(0xffffffffu, run_0, lane | 31);
    }
    #pragma unroll
    for (int g = 0; g < 4; ++g) {
        reinterpret_cast<float*>(shared + small_1)[(own_c + ((g * 4) % 4 + (g * 4) / 4 * 512)) / 128] = out0_total[g];
    }
    __syncthreads();
    #pragma unroll
    for (int g = 0; g < 4; ++g) {
        float run_0, before_0;
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            float next_0 = reinterpret_cast<float*>(shared + small_1)[((own_c + ((g * 4) % 4 + (g * 4) / 4 * 512)) / 512) * 4 + j];
            if (j > 0 && j == warp) { before_0 = run_0; }
            if (j > 0) join_scan_64x2048_out0(run_0, next_0);
            run_0 = next_0;
        }
        if (warp > 0) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) join_scan_64x2048_out0(before_0, out0[g * 4 + i]);
        }
        out0_total[g] = run_0;
    }
    #pragma unroll
    for (int g = 0; g < 1; ++g) {
        float run_0 = out0_total[g * 4];
        #pragma unroll
        for (int j = 1; j < 4; ++j) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) join_scan_64x2048_out0(run_0, out0[(g * 4 + j) * 4 + i]);
            float next_0 = out0_total[g * 4 + j];
            join_scan_64x2048_out0(run_0, next_0);
            run_0 = next_0;
        }
        out0_total[g] = run_0;
    }
    float* const out0_at = out0_ptr + r_0 * 2048 + own_c;
    #pragma unroll
    for (int r_c = 0; r_c < 16; r_c += 4)
        store<4, 1>(out0_at + r_c % 4 + r_c / 4 * 512, out0 + r_c);
}
