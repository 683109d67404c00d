// a schedule
//
// in0: (1000, 768) float16
// in1: (768,) float16
// in2: (768,) float16
// out0: (1000, 768) float16
//
// kernel sum_sum_1000: grid r.0 in 1000  [warps 4, stages 1]
//   in0: (r 1, c 1024) float16 = load in0[r.0 : +1, 0 : +1024]
//   t1: (r 1) float32 = sum of in0 over c
//   t: (r 1) float32 = mul(t1, 0.00130208)
//   t2: (r 1, c 1024) float32 = sub(in0, t)
//   t0_body: (r 1, c 1024) float32 = mul(t2, t2)
//   t0: (r 1) float32 = sum of t0_body over c
//   t3: (r 1) float32 = mul(t0, 0.00130208)
//   t4: (r 1) float32 = add(t3, 1e-05)
//   t5: (r 1) float32 = rsqrt(t4)
//   t6: (r 1, c 1024) float32 = mul(t2, t5)
//   in1: (c 1024) float16 = load in1[0 : +1024]
//   t7: (r 1, c 1024) float32 = mul(t6, in1)
//   in2: (c 1024) float16 = load in2[0 : +1024]
//   result: (r 1, c 1024) float32 = add(t7, in2)
//   store out0[r.0 : +1, 0 : +1024] = result

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

__device__ __forceinline__ float widened(float16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}

__device__ __forceinline__ void narrowed(float x, float& y) { y = x; }

__device__ __forceinline__ void narrowed(float x, float16& y) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
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
__device__ __forceinline__ void unpack(float* to, const Vector<float16, count>& v) {
    if constexpr (count == 1) to[0] = widened(v.at[0]);
    #pragma unroll
    for (int i = 0; i + 1 < count; i += 2)
        asm("{.reg .f16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high;}"
            : "=f"(to[i * apart]), "=f"(to[(i + 1) * apart]) : "r"(v.pairs[i / 2]));
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

__device__ __forceinline__ float join_sum(float a, float b) { return a + b; }

template <int count, int apart, typename T>
__device__ __forceinline__ T fold_sum(const T* x) {
    if constexpr (count == 1) return x[0];
    else return join_sum(fold_sum<count / 2, apart>(x), fold_sum<count - count / 2, apart>(x + count / 2 * apart));
}
template <int first, int end, typename T>
__device__ __forceinline__ T lanes_sum(T x) {
    #pragma unroll
    for (int apart = first; apart < end; apart *= 2) x = join_sum(x, __shfl_xor_sync(0xffffffffu, x, apart));
    return x;
}

extern "C" __global__ void __launch_bounds__(128, 1)
sum_sum_1000(
    const float16* __restrict__ in0_ptr,
    const float16* __restrict__ in1_ptr,
    const float16* __restrict__ in2_ptr,
    float16* __restrict__ out0_ptr) {
    extern __shared__ __align__(1024) unsigned char shared[];
    constexpr int small_1 = 0;
    constexpr int small_2 = 16;
    const uint32 shared_at = __cvta_generic_to_shared(shared);
    __builtin_assume(threadIdx.x < 128);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int block = blockIdx.x;
    const int r_0 = block;
    const int own_c = lane * 8 + warp * 256;
    float in0[8];
    const float16* const in0_at = in0_ptr + r_0 * 768 + own_c;
    #pragma unroll
    for (int r_c = 0; r_c < 8; r_c += 8)
        load<8, 1>(in0 + r_c, in0_at + r_c, own_c + r_c < 768);
    float in0_folded[8];
    #pragma unroll
    for (int r_c = 0; r_c < 8; ++r_c)
        in0_folded[r_c] = own_c < 768 ? in0[r_c] : 0.0f;
    float t1;
    t1 = fold_sum<8, 1>(in0_folded);
    t1 = lanes_sum<1, 32>(t1);
    if (lane == 0) reinterpret_cast<float*>(shared + small_1)[warp] = t1;
    __syncthreads();
    t1 = fold_sum<4, 1>(reinterpret_cast<float*>(shared + small_1) + 0);
    float t;
    t = t1 * 0.0013020833721384406f;
    float t2[8];
    float t0_body[8];
    #pragma unroll
    for (int r_c = 0; r_c < 8; ++r_c) {
        t2[r_c] = in0[r_c] - t;
        t0_body[r_c] = t2[r_c] * t2[r_c];
    }
    float t0_body_folded[8];
    #pragma unroll
    for (int r_c = 0; r_c < 8; ++r_c)
        t0_body_folded[r_c] = own_c < 768 ? t0_body[r_c] : 0.0f;
    float t0;
    t0 = fold_sum<8, 1>(t0_body_folded);
    t0 = lanes_sum<1, 32>(t0);
    if (lane == 0) reinterpret_cast<float*>(shared + small_2)[warp] = t0;
    __syncthreads();
    t0 = fold_sum<4, 1>(reinterpret_cast<float*>(shared + small_2) + 0);
    float t3;
    float t4;
    float t5;
    t3 = t0 * 0.0013020833721384406f;
    t4 = t3 + 9.999999747378752e-06f;
    t5 = rsqrtf(t4);
    float t6[8];
    #pragma unroll
    for (int r_c = 0; r_c < 8; ++r_c)
        t6[r_c] = t2[r_c] * t5;
    float in1[8];
    const float16* const in1_at = in1_ptr + own_c;
    #pragma unroll
    for (int r_c = 0; r_c < 8; r_c += 8)
        load<8, 1>(in1 + r_c, in1_at + r_c, own_c + r_c < 768);
    float t7[8];
    #pragma unroll
    for (int r_c = 0; r_c < 8; ++r_c)
        t7[r_c] = t6[r_c] * in1[r_c];
    float in2[8];
    const float16* const in2_at = in2_ptr + own_c;
    #pragma unroll
    for (int r_c = 0; r_c < 8; r_c += 8)
        load<8, 1>(in2 + r_c, in2_at + r_c, own_c + r_c < 768);
    float result[8];
    #pragma unroll
    for (int r_c = 0; r_c < 8; ++r_c)
        result[r_c] = t7[r_c] + in2[r_c];
    float16* const result_at = out0_ptr + r_0 * 768 + own_c;
    #pragma unroll
    for (int r_c = 0; r_c < 8; r_c += 8)
        if (own_c + r_c < 768)
            store<8, 1>(result_at + r_c, result + r_c);
}
