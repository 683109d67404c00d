"""Bytes as pairs of 16-bit floats by their bits: a field of a few is put into the mantissas of 128 or 1024.

    1024 + q = 0x6400 | q                 float16: a field of at most seven bits of the lower byte of each half
     128 + q = 0x4300 | q                 bfloat16
    fields = fma(base | q ^ sign, 1, -(base + sign + less))

The eighth bit of a signed byte is subtracted again. So the pairs of a word are its bytes 0 and 2, and 1 and 3; those of
floats of eight bits, which are converted by an instruction, are neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autosched.backends.backend import CompileError
from autosched.backends.cuda.dots import functions as fn
from autosched.backends.cuda.dots.functions import Functions
from search_spaces.devices.features import Features
from search_spaces.programs.bit_fields import BitField

# A number in whose mantissa a field of bits is a distance from it, its bits and those of 1: of each half of a word.
_BASES = {"bfloat16": (128, 0x4300, 0x3F80), "float16": (1024, 0x6400, 0x3C00)}
ELEMENTS = (*_BASES,)
# Types of pairs (PTX ISA, fma).
_SHORT = {"bfloat16": "bf16", "float16": "f16"}

_FIELDS = """\
// Bits of both halves of a word as numbers, some of them turned, and a constant added.
template <uint32 mask, uint32 turned>
__device__ __forceinline__ uint32 fields_{element}(uint32 bits, uint32 added) {{
    uint32 x;
    asm("lop3.b32 %0, %1, %2, %3, 0x6A;" : "=r"(x) : "r"(bits), "n"(mask), "r"({base}u | turned));
    asm("fma.rn.{short}x2 %0, %0, %1, %2;" : "+r"(x) : "r"({one}u), "r"(added));
    return x;
}}"""
_SIGNED = """\
// The lower bytes of both halves of a word as signed numbers: seven bits, less 128 where the eighth is set.
__device__ __forceinline__ uint32 signed_{element}(uint32 bits) {{
    uint32 x, y;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(x) : "r"(bits), "r"(0x007f007fu), "r"({base}u));
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(y) : "r"(bits), "r"(0x00800080u), "r"({base}u));
    asm("fma.rn.{short}x2 %0, %1, %2, %3;" : "=r"(x) : "r"(y), "r"({minus_one}u), "r"(x));
    return x;
}}"""
_FLOATS = """\
// The lower two bytes of a word as numbers.
__device__ __forceinline__ uint32 {name}(uint32 bits) {{
    uint32 x;
    asm("cvt.rn.f16x2.{conversion} %0, %1;" : "=r"(x) : "h"((unsigned short)bits));
"""
_HALVES = """\
    return x;
}}"""
_THROUGH_FLOAT = """\
    asm("{{.reg .f16 low, high; .reg .f32 a, b; mov.b32 {{low, high}}, %0; "
        "cvt.f32.f16 a, low; cvt.f32.f16 b, high; cvt.rn.bf16x2.f32 %0, b, a;}}" : "+r"(x));
    return x;
}}"""
_LESS = """\
__device__ __forceinline__ uint32 less_{element}(uint32 x, uint32 y) {{
    asm("fma.rn.{short}x2 %0, %1, %2, %0;" : "+r"(x) : "r"(y), "r"({minus_one}u));
    return x;
}}"""


@dataclass(frozen=True)
class BytePairs:
    """Prints conversions to pairs of `element`; `functions` has those that were used."""

    element: str
    functions: Functions
    features: Features

    def field(self, field: BitField, word: str, more: int) -> str:
        """The field of the bytes at bits `more` and 16 + `more` of a word. Raises CompileError if it is not exact."""
        base = _BASES[self.element][0]
        shift = field.first + more
        shifted = f"{word} >> {shift}" if shift else word
        if field.is_whole:
            return f"{self._use('signed', _SIGNED)}({shifted})"
        bits = ", ".join(hex(n << 16 | n) for n in ((1 << field.width) - 1, field.sign))
        added = _pair(-(base + field.sign + field.less), self.element)
        return f"{self._use('fields', _FIELDS)}<{bits}>({shifted}, {hex(added)}u)"

    def floats(self, name: str, word: str, more: int) -> str:
        """Two neighbouring floats of eight bits, from bit `more` of a word on."""
        text = _FLOATS + (_HALVES if self.element == "float16" else _THROUGH_FLOAT)
        conversion = {"float8_e4m3fn": "e4m3x2", "float8_e5m2": "e5m2x2"}[name]
        function = f"floats_{name}_{self.element}"
        used = self.functions.use(function, text.format(name=function, conversion=conversion))
        return f"{used}({word}{f' >> {more}' if more else ''})"

    def less(self, pair: str, number: str) -> str:
        """A pair less a number of float32."""
        packed = self.functions.use(*fn.pack(self.element, self.features))
        return f"{self._use('less', _LESS)}({pair}, {packed}({number}, {number}))"

    def _use(self, name: str, text: str) -> str:
        _, bits, one = _BASES[self.element]
        halves = {"base": bits, "one": one, "minus_one": one | 0x8000}
        told = {"element": self.element, "short": _SHORT[self.element]}
        told |= {x: hex(n << 16 | n) for x, n in halves.items()}
        return self.functions.use(f"{name}_{self.element}", text.format(**told))


def _pair(value: int, element: str) -> int:
    """The bits of a number in both halves of a word. Raises CompileError if the type does not represent it."""
    bits = (
        int(np.float32(value).view(np.uint32)) >> 16
        if element == "bfloat16"
        else int(np.float16(value).view(np.uint16))
    )
    exact = np.uint32(bits << 16).view(np.float32) if element == "bfloat16" else np.uint16(bits).view(np.float16)
    if float(exact) != value:
        raise CompileError(f"a field of bits less {-value}, which is no {element}")
    return bits << 16 | bits
