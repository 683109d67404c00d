"""Rows of dots that are fields of bytes, scaled or not: pairs of floats by their bits (`dots.byte_pairs`).

    const uint4 bytes = read_chunk<64>(…, r, c, warp, lane);        16 bytes of a row, in each of four lanes
    x = __byte_perm(bytes.x, bytes.y, chosen);                      the two bytes of this lane, in the halves of a word
    in1_words[…] = scaled_bfloat16(signed_bfloat16(x), scale[r]);   their numbers, times what is the same along k

Of two values in a byte, a lane takes one byte at a time, and shifts it for the second. What each scaled number is
rounded to is what a product of float32 is: both factors are of the type of the dot, and their product is exact there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autosched.backends.cuda.dots import functions as fn
from autosched.backends.cuda.dots.byte_pairs import ELEMENTS, BytePairs
from autosched.backends.cuda.dots.functions import Functions
from autosched.backends.cuda.language.index import sum_of
from autosched.backends.cuda.language.loops import UNROLL
from autosched.backends.cuda.language.scope import open_braces
from autosched.backends.cuda.printer import KernelPrinter
from search_spaces.programs.bit_fields import BitField, FieldOperand, field_operand
from search_spaces.programs.statements import Interleave, Load, Map, Statement, produced, read
from search_spaces.programs.tiles import Tile
from search_spaces.workloads.dtypes import FLOAT8, dtype, holds_integers, range_of

# Bytes that a lane reads at once, and those of one word.
_CHUNK, _WORD = 16, 4

_READ_CHUNK = """\
// Sixteen bytes of a thread's row in swizzled rows of so many bytes: the eight rows of a warp lie in different banks.
template <int row_bytes>
__device__ __forceinline__ uint4 read_chunk(const unsigned char* from, int row, int chunk, int warp, int lane) {
    const int line = row / 2 * 64 + row % 2 * 8 + warp * 16 + lane / 4;
    const int place = chunk ^ line * row_bytes / 128 % (row_bytes / 16);
    return *reinterpret_cast<const uint4*>(from + line * row_bytes + place * 16);
}"""
# The addend is -0, which changes no product, nor the sign of 0.
_SCALED = """\
__device__ __forceinline__ uint32 scaled_{element}(uint32 x, uint32 scale) {{
    asm("fma.rn.{short}x2 %0, %0, %1, %2;" : "+r"(x) : "r"(scale), "r"(0x80008000u));
    return x;
}}"""


@dataclass(frozen=True)
class ByteRows:
    """Computed rows of fields of the bytes of one load: of each value in a byte, `scale` times it if there is one."""

    rows: Tile
    fields: tuple[FieldOperand, ...]
    scale: str = ""

    @staticmethod
    def of(body: Sequence[Statement], rows: Tile, axis: str) -> ByteRows | None:
        """The rows along the axis as such, by the statements that compute them; None if they are anything else."""
        made = {t.name: s for s in body for t in produced(s)}
        last = made[rows.name]
        parts = last.src if isinstance(last, Interleave) else (rows.name,)
        found = [_field(body, made, name, rows.dtype, axis) for name in parts]
        fields = [x for x, _ in (f for f in found if f)]
        scales = {f[1] for f in found if f}
        if len(fields) < len(parts) or len(scales) > 1 or not _are_alike(fields):
            return None
        return ByteRows(rows, tuple(fields), *scales)

    def replaced(self, body: Sequence[Statement]) -> frozenset[str]:
        """The tiles of a body that are not printed, since words take their place: all that depend on the bytes."""
        names = {self.fields[0].load.dst.name}
        for s in body:
            if names & {*read(s)}:
                names |= {t.name for t in produced(s)}
        return frozenset(names)


def _field(
    body: Sequence[Statement], made: Mapping[str, Statement], name: str, element: str, axis: str
) -> tuple[FieldOperand, str] | None:
    """The field of bytes that a tile is, and its scale, which every row has one of, or ""."""
    scale, of = "", name
    last = made[name]
    if isinstance(last, Map) and last.operator == "cast" and isinstance(last.arguments[0], str):
        product = made.get(last.arguments[0])
        if isinstance(product, Map) and product.operator == "mul":
            tiles = {t.name: t for x in product.arguments if isinstance(x, str) for t in produced(made[x])}
            first, *others = sorted(tiles.values(), key=lambda t: -len(t.axes))
            if len(others) != 1 or others[0].dtype != element or not {*others[0].axes} <= {axis}:
                return None
            of, scale = first.name, others[0].name
    found = _as_loaded(made[of]) or field_operand(body, of)
    if found is None or (found.zeros and not {*found.zeros.dst.axes} <= {axis}):
        return None
    return (found, scale) if _is_exact(found, element) else None


def _as_loaded(s: Statement) -> FieldOperand | None:
    """The field of all bits of bytes that are multiplied as loaded."""
    if not isinstance(s, Load) or s.dst.dtype not in ("int8", *FLOAT8):
        return None
    return FieldOperand(s, None if s.dst.dtype in FLOAT8 else BitField(0, 8, signed=True))


def _is_exact(found: FieldOperand, element: str) -> bool:
    """True if every number that the conversion goes through is one of the element type."""
    if element not in ELEMENTS:
        return False
    if found.field is None:
        return True
    largest = 2 * (found.field.sign + abs(found.field.less))
    if found.zeros:
        largest = max(largest, (1 << found.field.width) + max(map(abs, range_of(found.zeros.dst.dtype))))
    return holds_integers(element, largest)


def _are_alike(fields: Sequence[FieldOperand]) -> bool:
    """True if the fields differ at most by their place in the byte: one, or two of less than a byte."""
    first, *others = fields
    if len(others) > 1 or (others and first.field is None):
        return False
    return all(
        replace(x, field=x.field and first.field and replace(x.field, first=first.field.first)) == first for x in others
    )


@dataclass(frozen=True)
class ByteWords:
    """Prints the words of such rows; `functions` has what the text uses."""

    found: ByteRows
    printer: KernelPrinter
    functions: Functions

    def write(self, words: str, row: str, count: int, row_bytes: int, pieces: Sequence[str]) -> None:
        """Set the words of `count` rows of a thread along the axis `row`; `pieces`: where those of the slot begin."""
        block, (first, *others) = self.printer.block, self.found.fields
        size = dtype(first.load.dst.dtype).bytes
        assert size == 1, f"{first.load.dst} has no bytes"
        lane = "lane % 4 * 0x0101 + 0x0400" if others else f"lane % 4 * {_chosen(first)}"
        chunks, each = row_bytes // _CHUNK, _CHUNK // _WORD if others else _CHUNK // (2 * _WORD)
        total, name = each * chunks * len(pieces), self.functions.use("read_chunk", _READ_CHUNK)
        open_braces(block, "")
        block.write(f"const uint32 chosen = {lane};")
        block.write(UNROLL)
        open_braces(block, f"for (int row = 0; row < {count}; ++row)")
        if self.found.scale:
            pack = self.functions.use(*fn.pack(self.found.rows.dtype, self.printer.features))
            block.write(f"const uint32 scale = {pack}({', '.join([self._number(self.found.scale, row)] * 2)});")
        for n, begin in enumerate(pieces):
            block.write(UNROLL)
            open_braces(block, f"for (int chunk = 0; chunk < {chunks}; ++chunk)")
            block.write(f"const uint4 bytes = {name}<{row_bytes}>({begin}, row, chunk, warp, lane);")
            for number in range(each):
                at = sum_of(f"row * {total}", str(n * each * chunks), f"chunk * {each}", str(number))
                block.write(f"{words}[{at}] = {self._pair(self._chosen_bytes(number), row)};")
            block.close()
        block.close()
        block.close()

    def _chosen_bytes(self, number: int) -> str:
        """The bytes of the numbered pair of a chunk, in the halves of a word."""
        first, *others = (x.field for x in self.found.fields)
        if others and first and others[0]:
            word = f"bytes.{'xyzw'[number]}"
            parts = (f"{word} >> {f.first}" if f.first else word for f in (first, others[0]))
            return f"__byte_perm({', '.join(parts)}, chosen)"
        return f"__byte_perm(bytes.{'xz'[number]}, bytes.{'yw'[number]}, chosen)"

    def _pair(self, word: str, row: str) -> str:
        first, *others = self.found.fields
        pairs = BytePairs(self.found.rows.dtype, self.functions, self.printer.features)
        if first.field is None:
            pair = pairs.floats(first.load.dst.dtype, word, 0)
        else:
            pair = pairs.field(replace(first.field, first=0) if others else first.field, word, 0)
        if first.zeros:
            pair = pairs.less(pair, f"float({self._number(first.zeros.dst.name, row)})")
        if not self.found.scale:
            return pair
        short = {"bfloat16": "bf16", "float16": "f16"}[self.found.rows.dtype]
        text = _SCALED.format(element=self.found.rows.dtype, short=short)
        return f"{self.functions.use(f'scaled_{self.found.rows.dtype}', text)}({pair}, scale)"

    def _number(self, tile: str, row: str) -> str:
        return self.printer.tiles[tile].element({row: "row"})


def _chosen(found: FieldOperand) -> str:
    """The two bytes of lane 1 in four, in the lower half of a word as floats, or in the halves, and those of lane 0."""
    return "0x22 + 0x10" if found.field is None else "0x0202 + 0x0100"
