"""What the functions of dots do that are inline PTX, in C++ for a CPU: for `cuda_on_cpu`."""

from __future__ import annotations

PRELUDE = r"""
#include <vector>
using Word = unsigned int;
static unsigned __cvta_generic_to_shared(const void* p) { return (const unsigned char*)p - memory_shared; }

// What every lane of the warp gives.
template <typename T> static void of_all_lanes(T x, T (&all)[32]) {
    memcpy(exchanged[current], &x, sizeof(x));
    __syncwarp();
    for (int lane = 0; lane < 32; ++lane) memcpy(&all[lane], exchanged[current / 32 * 32 + lane], sizeof(x));
    __syncwarp();
}

// Asynchronous copies are made when they are waited for, no sooner.
struct Copy { unsigned to; const void* from; int size, bytes; };
static std::vector<std::vector<Copy>> copies[most];
static void begin_copy(unsigned to, const void* from, int size, int bytes) {
    if (copies[current].empty()) copies[current].emplace_back();
    copies[current].back().push_back({to, from, size, bytes});
}
static void end_group() {
    if (copies[current].empty()) copies[current].emplace_back();
    copies[current].emplace_back();
}
static void finish_copies(size_t in_flight) {
    auto& groups = copies[current];
    while (groups.size() > in_flight + 1) {
        for (auto& c : groups.front()) {
            memset(in_shared(c.to, c.size), 0, c.size);
            memcpy(in_shared(c.to, c.bytes), c.from, c.bytes);
        }
        groups.erase(groups.begin());
    }
}

static void matrices(unsigned* part, int count, unsigned at, bool across) {
    unsigned rows[32];
    of_all_lanes(at, rows);
    int lane = current % 32;
    for (int i = 0; i < count; ++i) {
        unsigned short two[2];
        for (int half = 0; half < 2; ++half) {
            int row = across ? lane % 4 * 2 + half : lane / 4, column = across ? lane / 4 : lane % 4 * 2 + half;
            memcpy(&two[half], in_shared(rows[i * 8 + row] + 2 * column, 2), 2);
        }
        memcpy(&part[i], two, 4);
    }
}

struct A { Word words[4]; };
struct B { Word words[2]; };
static float short_number(unsigned char bits, int mantissa) {
    int exponent = (bits & 0x7f) >> mantissa, most = (1 << 7 - mantissa) - 1, bias = most / 2;
    float part = float(bits & (1 << mantissa) - 1) / float(1 << mantissa);
    float x = exponent ? ldexpf(1 + part, exponent - bias) : ldexpf(part, 1 - bias);
    if (mantissa == 2 && exponent == most) x = part ? NAN : INFINITY;
    if (mantissa == 3 && (bits & 0x7f) == 0x7f) x = NAN;
    return bits & 0x80 ? -x : x;
}
static double number(unsigned short bits, char kind) {
    if (kind == 'b') return as<unsigned, float>(unsigned(bits) << 16);
    _Float16 y;
    memcpy(&y, &bits, 2);
    return double(y);
}
// x y + z in both halves of words, where that is exact.
static Word paired(Word x, Word y, Word z, char kind) {
    Word both = 0;
    for (int shift = 0; shift < 32; shift += 16) {
        double sum = number(x >> shift, kind) * number(y >> shift, kind) + number(z >> shift, kind);
        _Float16 half = _Float16(sum);
        both |= (kind == 'b' ? as<float, unsigned>(float(sum)) >> 16 : as<_Float16, unsigned short>(half)) << shift;
    }
    return both;
}
static Word __byte_perm(Word x, Word y, Word selector) {
    unsigned char bytes[8], chosen[4];
    memcpy(bytes, &x, 4);
    memcpy(bytes + 4, &y, 4);
    for (int i = 0; i < 4; ++i) chosen[i] = bytes[selector >> 4 * i & 7];
    Word made;
    memcpy(&made, chosen, 4);
    return made;
}
// Element k of four bytes times `step` of a word of an operand: 16 bits, bytes, or 32 bits.
static double element(const Word* words, int at, char kind) {
    unsigned short half;
    signed char byte;
    float whole;
    switch (kind) {
        case 'i': memcpy(&byte, (const char*)words + at, 1); return byte;
        case 't': memcpy(&whole, words + at, 4); return whole;
        default: memcpy(&half, (const char*)words + 2 * at, 2); return number(half, kind);
    }
}
// mma.m16n8 of 32 bytes along k.
template <int row, int column, typename C>
static void sixteen_rows(C* c, const Word (&a)[4], const Word (&b)[2], char kind) {
    A as_[32], mine;
    B bs[32], other;
    memcpy(&mine, a, sizeof(mine));
    memcpy(&other, b, sizeof(other));
    of_all_lanes(mine, as_);
    of_all_lanes(other, bs);
    int lane = current % 32, per = kind == 'i' ? 4 : kind == 't' ? 1 : 2;
    for (int i = 0; i < 4; ++i) {
        int m = lane / 4 + i / 2 * 8, n = lane % 4 * 2 + i % 2;
        double sum = 0;
        for (int half = 0; half < 2; ++half)
            for (int quad = 0; quad < 4; ++quad)
                for (int e = 0; e < per; ++e) {
                    const Word* left = &as_[m % 8 * 4 + quad].words[half * 2 + m / 8];
                    const Word* right = &bs[n * 4 + quad].words[half];
                    sum += element(left, e, kind) * element(right, e, kind);
                }
        c[i / 2 * row + i % 2 * column] += C(sum);
    }
}
// mma.m8n8k4: four products of lanes 4q to 4q + 3 and 16 more.
template <int row, int column>
static void eight_rows(float* c, Word a0, Word a1, Word b0, Word b1, bool a_rows, bool b_columns) {
    B as_[32], bs[32], mine{{a0, a1}}, other{{b0, b1}};
    of_all_lanes(mine, as_);
    of_all_lanes(other, bs);
    int lane = current % 32, quad = lane % 16 / 4 * 4;
    auto given = [&](B* all, int free, int k, bool along_k) {
        int from = quad + free / 4 * 16 + (along_k ? free % 4 : k);
        return element(all[from].words, along_k ? k : free % 4, 'h');
    };
    for (int i = 0; i < 8; ++i) {
        int m = lane % 2 + (i & 2) + lane / 16 * 4, n = (i & 4) + (lane & 2) + (i & 1);
        double sum = 0;
        for (int k = 0; k < 4; ++k) sum += given(as_, m, k, a_rows) * given(bs, n, k, b_columns);
        c[(i & 2) / 2 * row + ((i & 4) / 2 + (i & 1)) * column] += float(sum);
    }
}
"""

PRELUDE += r"""
// wmma: lane l has elements 8 l to 8 l + 7 of rows of 16, of a and c; of b, of columns.
struct Sums { float at[8]; };
static void wmma_load(Word (&part)[8], unsigned at, int apart, bool across) {
    for (int i = 0; i < 8; ++i) {
        int number = current % 32 * 8 + i, free = number / 16, k = number % 16;
        unsigned place = at + 2 * (across ? k * apart + free : free * apart + k);
        memcpy((char*)part + 2 * i, in_shared(place, 2), 2);
    }
    __syncwarp();
}
static void wmma_multiply(float (&c)[8], const Word (&a)[8], const Word (&b)[8]) {
    A as_[32], bs[32], mine, other;
    memcpy(&mine, a, sizeof(mine));
    memcpy(&other, b, sizeof(other));
    of_all_lanes(mine, as_);
    of_all_lanes(other, bs);
    for (int i = 0; i < 8; ++i) {
        int number = current % 32 * 8 + i, m = number / 16, n = number % 16;
        double sum = 0;
        for (int k = 0; k < 16; ++k) {
            int left = m * 16 + k, right = n * 16 + k;
            sum += element(as_[left / 8].words, left % 8, 'h') * element(bs[right / 8].words, right % 8, 'h');
        }
        c[i] += float(sum);
    }
}
static void wmma_store(unsigned at, const float (&c)[8], int apart, bool across) {
    for (int i = 0; i < 8; ++i) {
        int number = current % 32 * 8 + i, m = number / 16, n = number % 16;
        memcpy(in_shared(at + 4 * (across ? n * apart + m : m * apart + n), 4), &c[i], 4);
    }
    __syncwarp();
}
"""

_ROWS_AND_COLUMNS = "(float* c, uint32 a0, uint32 a1, uint32 b0, uint32 b1)"
_PARTS = "c, const uint32 (&a)[4], const uint32 (&b)[2])"

EMULATED = {
    **{
        f"void copy_async_{n}(uint32 to, const void* from, int bytes)": f"{{ begin_copy(to, from, {n}, bytes); }}"
        for n in (4, 8, 16)
    },
    "void commit_copies()": "{ end_group(); }",
    "void await_copies()": "{ finish_copies(in_flight); }",
    **{
        f"void load_{word}{across}(uint32 (&part)[{count}], uint32 at)": (
            f"{{ matrices(part, {count}, at, {int(bool(across))}); }}"
        )
        for word, count in (("four", 4), ("two", 2))
        for across in ("", "_across")
    },
    "void load_half(uint32 (&part)[4], uint32 at)": "{ part[2] = part[3] = 0; matrices(part, 2, at, 0); }",
    **{
        f"void multiply_{name}({kind}* {_PARTS}": f"{{ sixteen_rows<row, column>(c, a, b, '{letter}'); }}"
        for name, kind, letter in (
            ("float16", "float", "h"),
            ("bfloat16", "float", "b"),
            ("tf32", "float", "t"),
            ("int8", "int", "i"),
        )
    },
    **{
        f"void multiply_{a}_{b}{_ROWS_AND_COLUMNS}": (
            f"{{ eight_rows<row, column>(c, a0, a1, b0, b1, {int(a == 'row')}, {int(b == 'row')}); }}"
        )
        for a in ("row", "column")
        for b in ("row", "column")
    },
    **{
        f"void load_{side}_by_{order}(uint32 (&part)[8], uint32 at, int apart)": (
            f"{{ wmma_load(part, at, apart, {int((order == 'rows') != (side == 'a'))}); }}"
        )
        for side in "ab"
        for order in ("rows", "columns")
    },
    **{
        f"void multiply_blocks_{a}_{b}(float (&c)[8], const uint32 (&a)[8], const uint32 (&b)[8])": (
            "{ wmma_multiply(c, a, b); }"
        )
        for a in ("row", "column")
        for b in ("row", "column")
    },
    **{
        f"void store_by_{order}(uint32 at, const float (&c)[8], int apart)": (
            f"{{ wmma_store(at, c, apart, {int(order == 'columns')}); }}"
        )
        for order in ("rows", "columns")
    },
    **{
        f"uint32 {name}_{element}({arguments})": f"{{ return paired({factors}, '{element[0]}'); }}"
        for element, base, one, minus_one in (
            ("bfloat16", "0x43004300", "0x3f803f80", "0xbf80bf80"),
            ("float16", "0x64006400", "0x3c003c00", "0xbc00bc00"),
        )
        for name, arguments, factors in (
            ("fields", "uint32 bits, uint32 added", f"bits & mask ^ ({base} | turned), {one}, added"),
            ("signed", "uint32 bits", f"bits & 0x800080 | {base}, {minus_one}, bits & 0x7f007f | {base}"),
            ("less", "uint32 x, uint32 y", f"y, {minus_one}, x"),
        )
    },
    **{
        f"uint32 floats_{name}_{element}(uint32 bits)": (
            "{ uint32 both = 0; for (int half = 0; half < 2; ++half) {"
            f" {element} y; narrowed(short_number(bits >> 8 * half, {mantissa}), y);"
            " both |= uint32(y.bits) << 16 * half; } return both; }"
        )
        for name, mantissa in (("float8_e4m3fn", 3), ("float8_e5m2", 2))
        for element in ("bfloat16", "float16")
    },
    "uint32 round_tf32(uint32 bits)": "{ return (bits + 0x1000) & 0xffffe000; }",
    "uint32 pack_float16(float first, float second)": (
        "{ _Float16 two[2] = {_Float16(first), _Float16(second)}; uint32 both; memcpy(&both, two, 4); return both; }"
    ),
    "uint32 pack_bfloat16(float first, float second)": (
        "{ bfloat16 two[2]; narrowed(first, two[0]); narrowed(second, two[1]);"
        " uint32 both; memcpy(&both, two, 4); return both; }"
    ),
}
