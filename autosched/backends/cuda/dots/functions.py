"""Device functions of dots: operations of one warp, as inline PTX."""

from __future__ import annotations

from collections.abc import Mapping

from autosched.backends.cuda.dots.plans import DotPlan
from search_spaces.devices.features import PAIRS, Features
from search_spaces.workloads.dtypes import dtype, is_integer

# Loads of eight rows of 16 bytes, one row a lane, four or two times (PTX ISA, ldmatrix); `across`: transposed.
_MATRICES = """\
__device__ __forceinline__ void {name}(uint32 (&part)[{count}], uint32 at) {{
    asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{across}.shared.b16 {{{places}}}, [%{count}];"
        : {outputs} : "r"(at) : "memory");
}}"""

# The same for the first half of a step, if the second half is zeros.
_HALF = """\
__device__ __forceinline__ void load_half(uint32 (&part)[4], uint32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
        : "=r"(part[0]), "=r"(part[1]) : "r"(at) : "memory");
    part[2] = part[3] = 0;
}"""

# c += a * b of one instruction (PTX ISA, mma); a thread's four elements of c are of two rows and two columns, which lie
# `row` and `column` apart.
_MULTIPLY = """\
template <int row, int column>
__device__ __forceinline__ void {name}({c}* c, const uint32 (&a)[4], const uint32 (&b)[2]) {{
    {c} &c0 = c[0], &c1 = c[column], &c2 = c[row], &c3 = c[row + column];
{body}
}}"""
_SIXTEEN_ROWS = """\
    asm("mma.sync.aligned.{shape}.row.col.{types} "
        "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
        : "+{r}"(c0), "+{r}"(c1), "+{r}"(c2), "+{r}"(c3)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));"""
_HALF_STEP = """\
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {{%0, %1, %2, %3}}, {{%4, %5}}, {{%6}}, {{%0, %1, %2, %3}};"
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3) : "r"(a[{0}]), "r"(a[{1}]), "r"(b[{2}]));"""
_EIGHT_ROWS = """\
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {{%0, %1}}, {{%2}}, {{%3}}, {{%0, %1}};"
        : "+r"({0}), "+r"({1}) : "r"(a[{2}]), "r"(b[{3}]));"""

# The same of four products of 8 x 8 (PTX ISA, mma.m8n8k4): a thread has two rows and four columns.
_VOLTA = """\
template <int row, int column>
__device__ __forceinline__ void {name}(float* c, uint32 a0, uint32 a1, uint32 b0, uint32 b1) {{
    asm("mma.sync.aligned.m8n8k4.{a}.{b}.f32.f16.f16.f32 {{%0, %1, %2, %3, %4, %5, %6, %7}}, {{%8, %9}}, {{%10, %11}}, "
        "{{%0, %1, %2, %3, %4, %5, %6, %7}};"
        : "+f"(c[0]), "+f"(c[column]), "+f"(c[row]), "+f"(c[row + column]), "+f"(c[2 * column]), "+f"(c[3 * column]),
          "+f"(c[row + 2 * column]), "+f"(c[row + 3 * column])
        : "r"(a0), "r"(a1), "r"(b0), "r"(b1));
}}"""
# The same for 16 rows, columns and products along k, in the device's own register layout (PTX ISA, wmma).
_WMMA_LOAD = """\
__device__ __forceinline__ void {name}(uint32 (&part)[8], uint32 at, int apart) {{
    asm volatile("wmma.load.{side}.sync.aligned.{order}.m16n16k16.shared.f16 "
        "{{%0, %1, %2, %3, %4, %5, %6, %7}}, [%8], %9;"
        : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3]),
          "=r"(part[4]), "=r"(part[5]), "=r"(part[6]), "=r"(part[7])
        : "r"(at), "r"(apart) : "memory");
}}"""
_WMMA_MULTIPLY = """\
__device__ __forceinline__ void {name}(float (&c)[8], const uint32 (&a)[8], const uint32 (&b)[8]) {{
    asm("wmma.mma.sync.aligned.{a}.{b}.m16n16k16.f32.f32 {{%0, %1, %2, %3, %4, %5, %6, %7}}, "
        "{{%8, %9, %10, %11, %12, %13, %14, %15}}, {{%16, %17, %18, %19, %20, %21, %22, %23}}, "
        "{{%0, %1, %2, %3, %4, %5, %6, %7}};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]), "r"(a[6]), "r"(a[7]),
          "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(b[4]), "r"(b[5]), "r"(b[6]), "r"(b[7]));
}}"""
_WMMA_STORE = """\
__device__ __forceinline__ void {name}(uint32 at, const float (&c)[8], int apart) {{
    asm volatile("wmma.store.d.sync.aligned.{order}.m16n16k16.shared.f32 "
        "[%0], {{%1, %2, %3, %4, %5, %6, %7, %8}}, %9;"
        :: "r"(at), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]), "f"(c[4]), "f"(c[5]), "f"(c[6]), "f"(c[7]),
           "r"(apart) : "memory");
}}"""
_ROUND_TF32 = """\
__device__ __forceinline__ uint32 round_tf32(uint32 bits) {
    asm("cvt.rna.tf32.f32 %0, %0;" : "+r"(bits));
    return bits;
}"""
_PACK = """\
__device__ __forceinline__ uint32 pack_{element}(float first, float second) {{
    uint32 both;
    asm("cvt.rn.{short}x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
}}"""
# For devices without instructions for pairs.
_PACK_ONE_BY_ONE = """\
__device__ __forceinline__ uint32 pack_float16(float first, float second) {
    uint32 both;
    asm("{.reg .f16 low, high; cvt.rn.f16.f32 low, %1; cvt.rn.f16.f32 high, %2; mov.b32 %0, {low, high};}"
        : "=r"(both) : "f"(first), "f"(second));
    return both;
}"""
_COPY_ASYNC = """\
__device__ __forceinline__ void copy_async_{bytes}(uint32 to, const void* from, int bytes) {{
    asm volatile("cp.async.{cache}.shared.global [%0], [%1], {bytes}, %2;"
        :: "r"(to), "l"(from), "r"(bytes) : "memory");
}}"""
_COMMIT = """\
__device__ __forceinline__ void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}"""
_AWAIT = """\
template <int in_flight>
__device__ __forceinline__ void await_copies() {
    asm volatile("cp.async.wait_group %0;" :: "n"(in_flight) : "memory");
}"""
_COLUMN = """\
template <int pitch>
__device__ __forceinline__ uint32 four_of_a_column(const unsigned char* at) {
    return at[0] | at[pitch] << 8 | at[2 * pitch] << 16 | (uint32)at[3 * pitch] << 24;
}"""

_TYPES: Mapping[str, tuple[str, str]] = {
    "float16": ("m16n8k16", "f32.f16.f16.f32"),
    "bfloat16": ("m16n8k16", "f32.bf16.bf16.f32"),
    "float32": ("m16n8k8", "f32.tf32.tf32.f32"),
    "int8": ("m16n8k32", "s32.s8.s8.s32"),
    "float8_e4m3fn": ("m16n8k32", "f32.e4m3.e4m3.f32"),
    "float8_e5m2": ("m16n8k32", "f32.e5m2.e5m2.f32"),
}


def multiply_name(plan: DotPlan) -> str:
    """Name of the function that issues the instruction of a dot."""
    if plan.kind == "volta":
        return f"multiply_{'_'.join('row' if k else 'column' for k in plan.along_k)}"
    return f"multiply_{plan.element}" if plan.element != "float32" else "multiply_tf32"


def multiply_quads(plan: DotPlan) -> str:
    """The text of that function for quarters of a warp."""
    a, b = plan.along_k
    return _VOLTA.format(name=multiply_name(plan), a="row" if a else "col", b="col" if b else "row")


def multiply(plan: DotPlan, features: Features) -> str:
    """The same for whole warps; for less than a step by several instructions."""
    name, integral = multiply_name(plan), is_integer(plan.element)
    element = "tf32" if plan.element == "float32" else plan.element
    if any(i.k == plan.step for i in features.multiplying(element, "registers")):
        shape, types = _TYPES[plan.element]
        body = _SIXTEEN_ROWS.format(shape=shape, types=types, r="r" if integral else "f")
    elif integral:
        halves = (("c0", "c1", 0, 0), ("c2", "c3", 1, 0), ("c0", "c1", 2, 1), ("c2", "c3", 3, 1))
        body = "\n".join(_EIGHT_ROWS.format(*x) for x in halves)
    else:
        body = "\n".join(_HALF_STEP.format(*x) for x in ((0, 1, 0), (2, 3, 1)))
    return _MULTIPLY.format(name=name, c="int" if integral else "float", body=body)


def wmma_load(side: str, along_k: bool) -> tuple[str, str]:
    """Name and text of the function that reads 16 rows (side a) or columns (b) of 16 along k."""
    by_rows = along_k == (side == "a")
    name = f"load_{side}_by_{'rows' if by_rows else 'columns'}"
    return name, _WMMA_LOAD.format(name=name, side=side, order="row" if by_rows else "col")


def wmma_multiply(along_k: tuple[bool, bool]) -> tuple[str, str]:
    """Name and text of the function that multiplies these."""
    name = f"multiply_blocks_{'_'.join('row' if k else 'column' for k in along_k)}"
    a, b = along_k
    return name, _WMMA_MULTIPLY.format(name=name, a="row" if a else "col", b="col" if b else "row")


def wmma_store(turned: bool) -> tuple[str, str]:
    """Name and text of the function that stores 16 x 16 sums, by columns if `turned`."""
    name = f"store_by_{'columns' if turned else 'rows'}"
    return name, _WMMA_STORE.format(name=name, order="col" if turned else "row")


def matrices_name(count: int, across: bool) -> str:
    return f"load_{ {4: 'four', 2: 'two'}[count] }{'_across' if across else ''}"


def matrices(count: int, across: bool) -> str:
    """The function that loads `count` matrices of eight rows, or of eight columns."""
    return _MATRICES.format(
        name=matrices_name(count, across),
        count=count,
        across=".trans" if across else "",
        places=", ".join(f"%{i}" for i in range(count)),
        outputs=", ".join(f'"=r"(part[{i}])' for i in range(count)),
    )


def pack(element: str, features: Features) -> tuple[str, str]:
    """Name and text of the function that packs two neighbours of 16 bits into one register."""
    text = _PACK.format(element=element, short=dtype(element).short) if features.has(PAIRS) else _PACK_ONE_BY_ONE
    return f"pack_{element}", text


def copy_async(bytes_: int) -> str:
    """The function that copies `bytes_` bytes to shared memory, the last of which may be zeros."""
    return _COPY_ASYNC.format(bytes=bytes_, cache="cg" if bytes_ == 16 else "ca")


COMMON: Mapping[str, str] = {
    "load_half": _HALF,
    "round_tf32": _ROUND_TF32,
    "commit_copies": _COMMIT,
    "await_copies": _AWAIT,
    "four_of_a_column": _COLUMN,
}


class Functions:
    """The device functions of a module, each once, in the order of their first uses."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def use(self, name: str, text: str) -> str:
        """The name, after adding the text."""
        self.texts.setdefault(name, text)
        return name

    def common(self, name: str) -> str:
        return self.use(name, COMMON[name])
