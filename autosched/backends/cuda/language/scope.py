"""Names and blocks of generated C++ text."""

from __future__ import annotations

from autosched.backends.printing.scope import INDENT, LINE_LENGTH, Block, Identifiers, Scope

_KEYWORDS = """
    alignas alignof and asm auto bool break case catch char class const constexpr const_cast continue decltype default
    delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long
    mutable namespace new noexcept not nullptr operator or private protected public register reinterpret_cast return
    short signed sizeof static static_assert static_cast struct switch template this throw true try typedef typeid
    typename union unsigned using virtual void volatile while xor
"""
# Names in the text itself: of built-in variables, types and functions, and of definitions of every kernel.
_OWN = """
    threadIdx blockIdx blockDim gridDim warpSize lane warp block tile shared int64 uint64 uint32 float16 bfloat16
    float8_e4m3fn float8_e5m2 truth int8 int16 uint8 load store widened narrowed pair pair_end turn turn_end first
    height min max abs exp log sqrt sin cos tan pow floor ceil fma erf erfc y0 y1 yn j0 j1 jn gamma lgamma div
    hypot select signal index ahead slot
    printf assert malloc free memcpy memset clock logb signbit isnan isinf round remainder
"""
RESERVED = frozenset((*_KEYWORDS.split(), *_OWN.split()))


def cpp_identifiers() -> Identifiers:
    """Identifiers of a kernel, none given yet."""
    return Identifiers(RESERVED)


def call(function: str, *arguments: str) -> str:
    """`function(arguments)`, one argument a line if a single line would be too long."""
    line = f"{function}({', '.join(arguments)})"
    if len(line) <= LINE_LENGTH:
        return line
    return f"{function}(\n{INDENT}" + f",\n{INDENT}".join(arguments) + ")"


def open_braces(block: Block, header: str, *variables: str) -> Scope:
    """Start a block between braces, after `header`."""
    return block.open(f"{header} {{" if header else "{", *variables, footer="}")
