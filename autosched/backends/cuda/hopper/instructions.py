"""Device functions for barriers, copies of tiles and dots of warp groups, each around one instruction of PTX."""

from __future__ import annotations

from autosched.backends.printing.scope import INDENT

# PTX ISA: mbarrier, cp.async.bulk.tensor, stmatrix, bar. An arrival at another block's barrier has no
# `.release.cluster`, which would be a fence for the whole device in the loop (1.3 to 3 times slower on an H200).
BASE = """\
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
"""

# By element type: how two numbers are rounded into 32 bits.
PACKED = {
    "float16": "cvt.rn.f16x2.f32",
    "bfloat16": "cvt.rn.bf16x2.f32",
}
# Kind of dot by the element type of its operands: products of one instruction, types, and whether these may run along
# another axis than the one that is summed over (PTX ISA, wgmma.mma_async).
_KINDS = {
    "float16": ("k16", "f32.f16.f16", True),
    "bfloat16": ("k16", "f32.bf16.bf16", True),
    "float32": ("k8", "f32.tf32.tf32", False),
    "int8": ("k32", "s32.s8.s8", False),
    "float8_e4m3fn": ("k32", "f32.e4m3.e4m3", False),
    "float8_e5m2": ("k32", "f32.e5m2.e5m2", False),
}
_A_LINE = 4


def load_name(shared: bool, window: bool) -> str:
    """`load_pixels_to`: of pixels under a filter tap, to several blocks of a cluster."""
    return f"load_{'pixels' if window else 'tile'}{'_to' if shared else ''}"


def tile_load(rank: int, shared: bool, window: bool) -> str:
    """A copy of a tile of a tensor to shared memory; `shared`: to that of several blocks of a cluster.

    `window`: by an im2col map, with the distances of the tap.
    """
    name, kind = load_name(shared, window), ".multicast::cluster" if shared else ""
    starts, places = _starts(rank), ", ".join(f"%{3 + shared + i}" for i in range(rank))
    taps = [f"tap_{i}" for i in range(rank - 2)] if window else []
    behind = f", {{{', '.join(f'%{3 + shared + rank + i}' for i in range(rank - 2))}}}" if window else ""
    operands = [f'"r"({x})' for x in starts] + [f'"h"((unsigned short){x})' for x in taps]
    return f"""\
__device__ __forceinline__ void {name}(uint32 to, const TensorMap& map, uint32 barrier{
        ", unsigned short blocks" if shared else ""
    }, {", ".join(f"int {x}" for x in (*starts, *taps))}) {{
    asm volatile(
        "cp.async.bulk.tensor.{rank}d.shared::cluster.global{".im2col" if window else ""}.mbarrier::complete_tx::bytes{
        kind
    }"
        " [%0], [%1, {{{places}}}], [%2]{behind}{", %3" if shared else ""};" ::"r"(to), "l"(&map), "r"(barrier),
        {'"h"(blocks), ' if shared else ""}{", ".join(operands)} : "memory");
}}
"""


def tile_store(rank: int) -> str:
    """A copy of a tile in shared memory to a tensor."""
    starts, places = _starts(rank), ", ".join(f"%{2 + i}" for i in range(rank))
    numbers = ", ".join(f"int {x}" for x in starts)
    return f"""\
__device__ __forceinline__ void store_tile(const TensorMap& map, uint32 from, {numbers}) {{
    asm volatile("cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [%0, {{{places}}}], [%1];" ::"l"(&map),
        "r"(from), {", ".join(f'"r"({x})' for x in starts)} : "memory");
}}
"""


def _starts(rank: int) -> list[str]:
    """Names of a tile's coordinates, innermost first."""
    return [f"at_{i}" for i in range(rank)]


def write_pairs(element: str) -> str:
    """Functions that write a warp group's accumulators to a piece of rows in shared memory, rounded to 16 bits.

    `down` and `across`: registers between neighbouring rows and columns of a thread.
    """
    return f"""\
// Four matrices of 8 x 8 to shared memory, the rows of each to where eight of the lanes say.
template <bool transposed> __device__ __forceinline__ void store_matrices(
    {element}, uint32 to, float a0, float a1, float b0, float b1, float c0, float c1, float d0, float d1) {{
    uint32 a, b, c, d;
    asm("{PACKED[element]} %0, %1, %2;" : "=r"(a) : "f"(a1), "f"(a0));
    asm("{PACKED[element]} %0, %1, %2;" : "=r"(b) : "f"(b1), "f"(b0));
    asm("{PACKED[element]} %0, %1, %2;" : "=r"(c) : "f"(c1), "f"(c0));
    asm("{PACKED[element]} %0, %1, %2;" : "=r"(d) : "f"(d1), "f"(d0));
    if (transposed)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {{%1, %2, %3, %4}};" ::"r"(to), "r"(a),
            "r"(b), "r"(c), "r"(d) : "memory");
    else
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {{%1, %2, %3, %4}};" ::"r"(to), "r"(a), "r"(b),
            "r"(c), "r"(d) : "memory");
}}
"""


_WRITE_ROWS = """\
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
"""
_WRITE_COLUMNS = """\
// 64 rows of sums of a warp group to shared memory: each of `columns` columns to a swizzled row of 64 elements.
template <typename T, int columns, int down, int across>
__device__ __forceinline__ void write_columns(uint32 to, const float* x, int warp, int lane) {
    #pragma unroll
    for (int column = 0; column < columns; column += 16) {
        const float* y = x + column / 4 * across;
        const int line = column + lane / 16 * 8 + lane % 8;
        const int place = warp * 2 + lane / 8 % 2 ^ line % 8;
        store_matrices<true>(T(), to + line * 128 + place * 16, y[0], y[across], y[down], y[down + across],
            y[2 * across], y[3 * across], y[down + 2 * across], y[down + 3 * across]);
    }
}
"""
_READ_ROWS = """\
// What was brought for a warp group, from swizzled rows of `columns` elements to registers as sums are held.
template <typename T, int rows, int columns, int down, int across, typename H>
__device__ __forceinline__ void read_rows(H* x, const unsigned char* from, int warp, int lane) {
    constexpr int row_bytes = columns * sizeof(T);
    #pragma unroll
    for (int row = 0; row < rows; row += 32)
        #pragma unroll
        for (int column = 0; column < columns; column += 8) {
            const int line = row / 64 * 64 + row / 32 % 2 * 8 + warp * 16 + lane / 4;
            const int byte = (column + lane % 4 * 2) * sizeof(T);
            const int place = byte / 16 ^ line * row_bytes / 128 % (row_bytes / 16);
            load<2, across>(
                x + row / 32 * down + column / 4 * across,
                reinterpret_cast<const T*>(from + line * row_bytes + place * 16 + byte % 16));
        }
}
"""
_READ_COLUMNS = """\
// The same of 64 rows, each of `columns` columns from a swizzled row of 64 elements of 16 bits.
template <typename T, int columns, int down, int across, typename H>
__device__ __forceinline__ void read_columns(H* x, const unsigned char* from, int warp, int lane) {
    #pragma unroll
    for (int row = 0; row < 2; ++row)
        #pragma unroll
        for (int column = 0; column < columns / 4; ++column) {
            const int line = column / 2 * 8 + lane % 4 * 2 + column % 2;
            const int place = warp * 2 + row ^ line % 8;
            load<1, 1>(
                x + row * down + column * across,
                reinterpret_cast<const T*>(from + line * 128 + place * 16 + lane / 4 * 2));
        }
}
"""
_WRITE_ELEMENTS = """\
// The same as rows of elements of any type, in pairs.
template <typename T, int rows, int columns, int down, int across, typename H>
__device__ __forceinline__ void write_elements(unsigned char* to, const H* x, int warp, int lane) {
    constexpr int row_bytes = columns * sizeof(T);
    #pragma unroll
    for (int row = 0; row < rows; row += 32)
        #pragma unroll
        for (int column = 0; column < columns; column += 8) {
            const int line = row / 64 * 64 + row / 32 % 2 * 8 + warp * 16 + lane / 4;
            const int byte = (column + lane % 4 * 2) * sizeof(T);
            const int place = byte / 16 ^ line * row_bytes / 128 % (row_bytes / 16);
            store<2, across>(
                reinterpret_cast<T*>(to + line * row_bytes + place * 16 + byte % 16),
                x + row / 32 * down + column / 4 * across);
        }
}
"""


READ_PART = """\
// A thread's part of rows that it multiplies, from swizzled rows of `columns` elements: `near` neighbours of each four.
template <typename T, int rows, int columns, int near, int down, int across, typename H>
__device__ __forceinline__ void read_part(H* x, const unsigned char* from, int warp, int lane) {
    constexpr int row_bytes = columns * sizeof(T);
    #pragma unroll
    for (int row = 0; row < rows; row += 32)
        #pragma unroll
        for (int column = 0; column < columns; column += 4 * near) {
            const int line = row / 64 * 64 + row / 32 % 2 * 8 + warp * 16 + lane / 4;
            const int byte = (column + lane % 4 * near) * sizeof(T);
            const int place = byte / 16 ^ line * row_bytes / 128 % (row_bytes / 16);
            load<near, across>(
                x + row / 32 * down + column / 4 * across,
                reinterpret_cast<const T*>(from + line * row_bytes + place * 16 + byte % 16));
        }
}"""
WORDS_READ = """\
// Words that dots read in the meantime are not changed before.
template <int count> __device__ __forceinline__ void words_read(uint32 (&words)[count]) {
    #pragma unroll
    for (int i = 0; i < count; ++i) asm volatile("" : "+r"(words[i])::"memory");
}"""


# Functions that move a tile between registers and shared memory, by name.
MOVES = {
    "write_rows": _WRITE_ROWS,
    "write_columns": _WRITE_COLUMNS,
    "write_elements": _WRITE_ELEMENTS,
    "read_rows": _READ_ROWS,
    "read_columns": _READ_COLUMNS,
}


def dot_name(columns: int, a_along_k: bool, b_along_k: bool) -> str:
    """`dot_256_kn`: of 256 columns, with a contiguous along k and b along columns."""
    return f"dot_{columns}_{'k' if a_along_k else 'm'}{'k' if b_along_k else 'n'}"


def rows_dot_name(columns: int, b_along_k: bool) -> str:
    """`dot_256_rk`: of 256 columns, with a in registers and b contiguous along k."""
    return f"dot_{columns}_r{'k' if b_along_k else 'n'}"


def rows_dot(element: str, columns: int, b_along_k: bool) -> str:
    """One dot instruction of 16-bit rows in registers, with 64 rows of accumulators (see `dot`)."""
    products, kinds, _ = _KINDS[element]
    count = columns // 2
    sums, numbers = _sums(columns, "f")
    words = [f"a{i}" for i in range(4)]
    rows = ", ".join(f"%{count + i}" for i in range(4))
    return f"""\
// sums (64 x {columns}) += a b, with the words of a
__device__ __forceinline__ void {rows_dot_name(columns, b_along_k)}(
    float* sums, {", ".join(f"uint32 {x}" for x in words)}, uint64 b) {{
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n{columns}{products}.{kinds} {{"
        "{numbers}"
        "}}, {{{rows}}}, %{count + 4}, 1, 1, 1, {int(not b_along_k)};"
        : {sums}
        : {", ".join(f'"r"({x})' for x in words)}, "l"(b));
}}
"""


def _sums(columns: int, constraint: str) -> tuple[str, str]:
    """Accumulators of an instruction, in its order, as operands of the text and as their numbers there.

    A thread has two rows of them, 8 apart, each a quarter of the columns. The instruction takes pairs of neighbouring
    columns, of one row and then of the other.
    """
    count, row = columns // 2, columns // 4
    order = [i // 2 % 2 * row + i // 4 * 2 + i % 2 for i in range(count)]
    sums = [f'"+{constraint}"(sums[{at}])' for at in order]
    lines = [", ".join(sums[i : i + _A_LINE]) for i in range(0, count, _A_LINE)]
    numbers = [", ".join(f"%{j}" for j in range(i, min(i + 16, count))) for i in range(0, count, 16)]
    return f",\n{INDENT * 2}  ".join(lines), ', "\n        "'.join(numbers)


def dot(element: str, columns: int, a_along_k: bool, b_along_k: bool) -> str:
    """One dot instruction with 64 rows of accumulators."""
    products, kinds, either_way = _KINDS[element]
    count = columns // 2
    constraint, held = ("r", "int") if element == "int8" else ("f", "float")
    operands, joined = _sums(columns, constraint)
    ways = f", {int(not a_along_k)}, {int(not b_along_k)}" if either_way else ""
    signs = "" if element == "int8" else f", 1, 1{ways}"
    name = dot_name(columns, a_along_k, b_along_k)
    return f"""\
// sums (64 x {columns}) = a b, or where something is there that is added to, += a b
__device__ __forceinline__ void {name}({held}* sums, uint64 a, uint64 b, int added) {{
    asm volatile(
        "{{ .reg .pred p; setp.ne.b32 p, %{count + 2}, 0;"
        "wgmma.mma_async.sync.aligned.m64n{columns}{products}.{kinds} {{"
        "{joined}"
        "}}, %{count}, %{count + 1}, p{signs}; }}"
        : {operands}
        : "l"(a), "l"(b), "r"(added));
}}
"""
