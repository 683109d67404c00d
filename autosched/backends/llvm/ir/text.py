"""LLVM IR as text, written one instruction after the other.

An instruction is a formatted line and costs about 1 µs. (llvmlite's own builder makes an object of it first, which
costs 25 µs and was half of the time that a variant took to compile.) Types are their spelling: "float", "<16 x float>".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autosched.backends.printing import quoting

F64 = "double"
F32 = "float"
F16 = "half"
I1 = "i1"
I8 = "i8"
I16 = "i16"
I32 = "i32"
I64 = "i64"
PTR = "ptr"
VOID = "void"

_SIGNED = {"<": "slt", "<=": "sle", ">": "sgt", ">=": "sge", "==": "eq", "!=": "ne"}
_ORDERED = {"<": "olt", "<=": "ole", ">": "ogt", ">=": "oge", "==": "oeq"}
_PLAIN_NAME = re.compile(r"[A-Za-z$._][A-Za-z$._0-9]*")
_UNORDERED = {"<": "ult", ">": "ugt", ">=": "uge", "!=": "une", "uno": "uno"}


@dataclass(slots=True, eq=False)
class IRValue:
    """A value by its type and its spelling; `number` if it is an integer constant."""

    type: str
    text: str
    number: int | None = None


@dataclass(slots=True, eq=False)
class Block:
    """A basic block. Its lines may contain phis, which are incomplete until the blocks that branch here are written."""

    label: str
    lines: list[str | Phi] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Truth(IRValue):
    """The result of a comparison, 1.0 or 0.0, with the condition itself for users of that."""

    condition: IRValue | None = None


@dataclass(slots=True, eq=False)
class Mask(IRValue):
    """Active lanes; `active`: the number of the first ones, if that is known."""

    active: int | None = None


@dataclass(slots=True, eq=False)
class Phi(IRValue):
    """A value that depends on the block that was left last."""

    incoming: list[tuple[IRValue, Block]] = field(default_factory=list)

    def add_incoming(self, value: IRValue, block: Block) -> None:
        self.incoming.append((value, block))

    def __str__(self) -> str:
        pairs = ", ".join(f"[{value.text}, %{block.label}]" for value, block in self.incoming)
        return f"  {self.text} = phi {self.type} {pairs}"


class Module:
    """Functions and their declarations. `str` gives the text."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._declarations: dict[str, str] = {}
        self._nontemporal = False

    def declare(self, function: str, result: str, arguments: Sequence[IRValue]) -> None:
        """Declare an external function on its first use."""
        if function not in self._declarations:
            types = ", ".join(a.type for a in arguments)
            self._declarations[function] = f"declare {result} @{function}({types})"

    def add(self, function: Builder) -> None:
        self._parts.append(str(function))

    def add_constant(self, name: str, value: IRValue) -> None:
        self._parts.append(f"@{spelled(name)} = constant {value.type} {value.text}")

    def nontemporal(self) -> str:
        """The mark of a store that bypasses the caches."""
        self._nontemporal = True
        return ", !nontemporal !0"

    def __str__(self) -> str:
        metadata = ["!0 = !{i32 1}"] if self._nontemporal else []
        return "\n\n".join([*self._parts, "\n".join(self._declarations.values()), *metadata]) + "\n"


def _binary(opcode: str) -> Callable[[Builder, IRValue, IRValue], IRValue]:
    def write(self: Builder, x: IRValue, y: IRValue) -> IRValue:
        return self.instruction(x.type, f"{opcode} {x.type} {x.text}, {y.text}")

    return write


def _cast(opcode: str) -> Callable[[Builder, IRValue, str], IRValue]:
    def write(self: Builder, x: IRValue, to: str) -> IRValue:
        return self.instruction(to, f"{opcode} {x.type} {x.text} to {to}")

    return write


class Builder:
    """Writes one function, without a result: instructions go to the end of the current block."""

    def __init__(self, module: Module, name: str, arguments: Sequence[tuple[str, str]], attributes: str) -> None:
        """`arguments`: a type (with attributes, as "ptr noalias") and a name each."""
        self.module = module
        # Number of values and blocks that asked for each name, or got it.
        self._names: dict[str, int] = {}
        self._numbers = 0
        self.arguments = tuple(IRValue(t.split()[0], self._named(n)) for t, n in arguments)
        signature = ", ".join(f"{t} {v.text}" for (t, _), v in zip(arguments, self.arguments, strict=True))
        self._head = f"define void @{spelled(name)}({signature}) {attributes} {{"
        self._slots: list[str] = []
        self._blocks: list[Block] = []
        self.block = self.append_basic_block("entry")

    def __str__(self) -> str:
        lines = [self._head]
        for block in self._blocks:
            lines.append(f"{block.label}:")
            if block is self._blocks[0]:
                lines += self._slots
            lines += [line if isinstance(line, str) else str(line) for line in block.lines]
        return "\n".join([*lines, "}"])

    def _named(self, name: str) -> str:
        """A unique local name. Those without a name of their own begin with a dot."""
        wanted = f"_{name}" if name.startswith(".") else name
        unique, number = wanted, self._names.get(wanted, 0)
        while unique in self._names:
            unique = f"{wanted}.{number}"
            number += 1
        self._names[wanted] = max(number, 1)
        self._names.setdefault(unique, 1)
        return f"%{spelled(unique)}"

    def _line(self, text: str) -> None:
        self.block.lines.append(f"  {text}")

    def instruction(self, result: str, text: str) -> IRValue:
        """Write an instruction that yields a value of type `result`."""
        self._numbers += 1
        name = f"%.{self._numbers}"
        self.block.lines.append(f"  {name} = {text}")
        return IRValue(result, name)

    def comment(self, text: str) -> None:
        self._line(quoting.comment([text], ";"))

    # Blocks

    def append_basic_block(self, name: str) -> Block:
        block = Block(self._named(name)[1:])
        self._blocks.append(block)
        return block

    def position_at_end(self, block: Block) -> None:
        self.block = block

    def phi(self, result: str, name: str = "phi") -> Phi:
        node = Phi(result, self._named(name))
        self.block.lines.append(node)
        return node

    def branch(self, to: Block) -> None:
        self._line(f"br label %{to.label}")

    def cbranch(self, condition: IRValue, then: Block, otherwise: Block) -> None:
        self._line(f"br i1 {condition.text}, label %{then.label}, label %{otherwise.label}")

    def ret_void(self) -> None:
        self._line("ret void")

    # Memory

    def stack_slot(self, of: str, name: str) -> IRValue:
        """Room for a value on the stack, taken once at the function's entry."""
        slot = IRValue(PTR, self._named(name))
        self._slots.append(f"  {slot.text} = alloca {of}")
        return slot

    def gep(self, base: IRValue, offset: IRValue, element: str, inbounds: bool = True) -> IRValue:
        """The address that many elements after base; a vector of addresses if the offset is one.

        `inbounds`: it is in the memory of base, or right behind it.
        """
        result = _like(offset.type, PTR)
        mark = " inbounds" if inbounds else ""
        return self.instruction(result, f"getelementptr{mark} {element}, ptr {base.text}, {offset.type} {offset.text}")

    def load(self, address: IRValue, result: str, align: int | None = None) -> IRValue:
        return self.instruction(result, f"load {result}, ptr {address.text}{_aligned(align)}")

    def store(self, value: IRValue, address: IRValue, align: int | None = None, nontemporal: bool = False) -> None:
        mark = self.module.nontemporal() if nontemporal else ""
        self._line(f"store {value.type} {value.text}, ptr {address.text}{_aligned(align)}{mark}")

    def fence(self) -> None:
        self._line("fence seq_cst")

    # Arithmetic, all of it element by element

    def binary(self, opcode: str, x: IRValue, y: IRValue) -> IRValue:
        """An instruction of two operands of one type; `opcode` with flags, as "fadd contract"."""
        return self.instruction(x.type, f"{opcode} {x.type} {x.text}, {y.text}")

    add, sub, mul = _binary("add"), _binary("sub"), _binary("mul")
    sdiv, srem, udiv, urem = _binary("sdiv"), _binary("srem"), _binary("udiv"), _binary("urem")
    and_, or_, xor = _binary("and"), _binary("or"), _binary("xor")
    shl, lshr, ashr = _binary("shl"), _binary("lshr"), _binary("ashr")
    fadd, fsub, fmul, fdiv = _binary("fadd"), _binary("fsub"), _binary("fmul"), _binary("fdiv")
    bitcast, trunc, zext, sext = _cast("bitcast"), _cast("trunc"), _cast("zext"), _cast("sext")
    fpext, fptrunc, sitofp, fptosi = _cast("fpext"), _cast("fptrunc"), _cast("sitofp"), _cast("fptosi")
    uitofp = _cast("uitofp")

    def fneg(self, x: IRValue) -> IRValue:
        return self.instruction(x.type, f"fneg {x.type} {x.text}")

    def icmp_signed(self, comparison: str, x: IRValue, y: IRValue) -> IRValue:
        return self._compare(f"icmp {_SIGNED[comparison]}", x, y)

    def icmp_unsigned(self, comparison: str, x: IRValue, y: IRValue) -> IRValue:
        return self._compare(f"icmp {_UNORDERED[comparison]}", x, y)

    def fcmp_ordered(self, comparison: str, x: IRValue, y: IRValue) -> IRValue:
        """False if either is NaN."""
        return self._compare(f"fcmp {_ORDERED[comparison]}", x, y)

    def fcmp_unordered(self, comparison: str, x: IRValue, y: IRValue) -> IRValue:
        """True if either is NaN; "uno" tests just that."""
        return self._compare(f"fcmp {_UNORDERED[comparison]}", x, y)

    def _compare(self, opcode: str, x: IRValue, y: IRValue) -> IRValue:
        return self.instruction(_like(x.type, I1), f"{opcode} {x.type} {x.text}, {y.text}")

    def select(self, condition: IRValue, x: IRValue, y: IRValue) -> IRValue:
        return self.instruction(
            x.type, f"select {condition.type} {condition.text}, {x.type} {x.text}, {y.type} {y.text}"
        )

    # Vectors

    def insert_element(self, into: IRValue, element: IRValue, at: int) -> IRValue:
        return self.instruction(
            into.type, f"insertelement {into.type} {into.text}, {element.type} {element.text}, i32 {at}"
        )

    def extract_element(self, x: IRValue, at: int, element: str) -> IRValue:
        return self.instruction(element, f"extractelement {x.type} {x.text}, i32 {at}")

    def shuffle_vector(self, x: IRValue, y: IRValue, mask: IRValue) -> IRValue:
        """The lanes of x followed by y with the numbers of the mask."""
        result = f"<{mask.type.split()[0][1:]} x {x.type.split()[-1]}"
        return self.instruction(result, f"shufflevector {x.type} {x.text}, {y.type} {y.text}, {mask.type} {mask.text}")

    # Calls

    def call(self, function: str, result: str, arguments: Sequence[IRValue]) -> IRValue:
        """Call an external function that yields a value."""
        self.module.declare(function, result, arguments)
        return self.instruction(result, f"call {result} @{function}({_given(arguments)})")

    def call_void(self, function: str, arguments: Sequence[IRValue]) -> None:
        self.module.declare(function, VOID, arguments)
        self._line(f"call void @{function}({_given(arguments)})")


def spelled(name: str) -> str:
    """A name in LLVM's spelling: as it is, or quoted, with unprintable characters in hexadecimal."""
    if _PLAIN_NAME.fullmatch(name):
        return name
    shown = (chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\{c:02X}" for c in name.encode())
    return f'"{"".join(shown)}"'


def _given(arguments: Sequence[IRValue]) -> str:
    return ", ".join([f"{a.type} {a.text}" for a in arguments])


def _aligned(align: int | None) -> str:
    return "" if align is None else f", align {align}"


def _like(shape: str, element: str) -> str:
    """The type with as many lanes as `shape` has."""
    return f"{shape.split(' x ')[0]} x {element}>" if shape.startswith("<") else element
