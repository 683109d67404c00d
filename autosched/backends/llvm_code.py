"""Writes LLVM IR: loops, addresses, and memory accesses that convert between stored and computed element types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from llvmlite import ir

from autosched.backends.llvm_values import (
    F32,
    I1,
    I16,
    I32,
    I64,
    PTR,
    VOID,
    bfloat16_bits,
    constant_mask,
    float_constant,
    index,
    int_constant,
    intrinsic,
    overload,
    smaller_index,
    vector,
)
from search_spaces.expression import Affine
from search_spaces.tile_program import Bound, Buffer

# What an element is in memory. bfloat16 is handled as the upper half of a float32.
_STORED: Mapping[str, ir.Type] = {"float32": F32, "float16": ir.HalfType(), "bfloat16": I16}
_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass
class Code:
    """An IR builder with what the printers of one kernel share.

    `variables` holds the grid and loop variables in scope; `extents` how far each runs; `base` the address of every
    buffer; `lanes` the float32 elements of a vector.
    """

    b: ir.IRBuilder
    lanes: int
    buffers: Mapping[str, Buffer]
    base: Mapping[str, ir.Value]
    scratch: ir.Value
    extents: Mapping[str, int]
    variables: dict[str, ir.Value] = field(default_factory=dict)
    scratch_bytes: int = 0

    @contextmanager
    def loop(self, extent: ir.Value | int, name: str, step: int = 1) -> Iterator[ir.Value]:
        """for name from 0 below extent by step; the body runs at least once."""
        b = self.b
        limit = index(extent) if isinstance(extent, int) else extent
        before, body = b.block, b.append_basic_block(name)
        b.branch(body)
        b.position_at_end(body)
        value = b.phi(I64, name)
        value.add_incoming(index(0), before)
        yield value
        following = b.add(value, index(step), flags=["nuw", "nsw"])
        value.add_incoming(following, b.block)
        after = b.append_basic_block(f"{name}.end")
        b.cbranch(b.icmp_signed("<", following, limit), body, after)
        b.position_at_end(after)

    @contextmanager
    def when(self, condition: ir.Value, name: str) -> Iterator[None]:
        """The body only when the condition holds."""
        b = self.b
        then, after = b.append_basic_block(name), b.append_basic_block(f"{name}.end")
        b.cbranch(condition, then, after)
        b.position_at_end(then)
        yield
        b.branch(after)
        b.position_at_end(after)

    def affine(self, form: Affine) -> ir.Value:
        """The value of an affine form of the variables in scope."""
        total: ir.Value | None = None
        for name, coefficient in form.terms:
            term = self.scaled(self.variables[name], coefficient)
            total = term if total is None else self.b.add(total, term, flags=["nuw", "nsw"])
        if total is None:
            return index(form.offset)
        return self.b.add(total, index(form.offset)) if form.offset else total

    def scaled(self, value: ir.Value, factor: int) -> ir.Value:
        return value if factor == 1 else self.b.mul(value, index(factor), flags=["nuw", "nsw"])

    def start(self, form: Affine, extent: int, size: int) -> ir.Value:
        """Where a piece of `extent` begins in a dimension of `size`, moved back when it would stick out.

        What two overlapping pieces share is computed twice, to the same values, so no second, masked version of the
        code is needed. A piece longer than the dimension begins at 0.
        """
        if extent >= size:
            return index(0)
        value = self.affine(form)
        if form.maximum(self.extents) + extent <= size:
            return value
        return smaller_index(self.b, value, index(size - extent))

    def trips(self, extent: int, bound: Bound | None, variable: str) -> ir.Value | int:
        """How many turns a loop with this bound takes: the bound's form grows with the loop's variable."""
        if bound is None:
            return extent
        step = dict(bound.start.terms)[variable]
        rest = Affine.of(*((v, c) for v, c in bound.start.terms if v != variable), offset=bound.start.offset)
        if rest.maximum(self.extents) + step * (extent - 1) < bound.size:
            return extent
        left = self.b.sub(index(bound.size + step - 1), self.affine(rest))
        return smaller_index(self.b, self.b.sdiv(left, index(step)), index(extent))

    def remaining(self, form: Affine, extent: int, size: int) -> ir.Value | int:
        """How many of `extent` positions from the form's value on lie below `size`."""
        if form.maximum(self.extents) + extent <= size:
            return extent
        return smaller_index(self.b, self.b.sub(index(size), self.affine(form)), index(extent))

    def address(self, base: ir.Value, offset: ir.Value | int, dtype: str = "float32") -> ir.Value:
        """base + offset elements."""
        if isinstance(offset, int):
            if offset == 0:
                return base
            offset = index(offset)
        return self.b.gep(base, [offset], inbounds=True, source_etype=_STORED[dtype])

    @staticmethod
    def element_bytes(dtype: str) -> int:
        return _BYTES[dtype]

    def take_scratch(self, elements: int) -> ir.Value:
        """The address of so many float32 elements of this thread's scratch memory, aligned to a page and staggered."""
        offset = self.scratch_bytes
        # 5 cache lines of stagger, so that packed operands do not start in the same cache set.
        self.scratch_bytes += -(-(elements * 4 + 64) // 4096) * 4096 + 320
        return self.b.gep(self.scratch, [index(offset)], inbounds=True, source_etype=ir.IntType(8))

    def load(self, address: ir.Value, dtype: str, lanes: int, mask: ir.Value | None = None) -> ir.Value:
        """`lanes` neighbouring elements as float32; masked-off lanes are 0."""
        stored = vector(_STORED[dtype], lanes)
        if mask is None:
            value = self.b.load(address, typ=stored)
            value.align = _BYTES[dtype]
        else:
            zero = int_constant(0, lanes, I16) if dtype == "bfloat16" else ir.Constant(stored, None)
            name = f"llvm.masked.load.{overload(lanes, _element_suffix(dtype))}.p0"
            value = intrinsic(self.b, name, stored, [address, ir.Constant(I32, _BYTES[dtype]), mask, zero])
        return self._widen(value, dtype, lanes)

    def store(
        self,
        value: ir.Value,
        address: ir.Value,
        dtype: str,
        lanes: int,
        mask: ir.Value | None = None,
        streaming: bool = False,
    ) -> None:
        """Write `lanes` neighbouring elements; `streaming` needs whole, aligned vectors of float32."""
        narrow = self._narrow(value, dtype, lanes)
        if mask is not None:
            name = f"llvm.masked.store.{overload(lanes, _element_suffix(dtype))}.p0"
            intrinsic(self.b, name, VOID, [narrow, address, ir.Constant(I32, _BYTES[dtype]), mask])
            return
        store = self.b.store(narrow, address)
        store.align = lanes * 4 if streaming else _BYTES[dtype]
        if streaming:
            one = self.b.module.add_metadata([ir.Constant(I32, 1)])
            store.set_metadata("nontemporal", one)

    def prefetch(self, address: ir.Value, write: bool = False) -> None:
        numbers = [ir.Constant(I32, v) for v in (int(write), 3, 1)]
        intrinsic(self.b, "llvm.prefetch.p0", VOID, [address, *numbers])

    def mask(self, active: int) -> ir.Value | None:
        """The mask of a vector with so many valid lanes, None when all are."""
        return None if active >= self.lanes else constant_mask(active, self.lanes)

    def _widen(self, value: ir.Value, dtype: str, lanes: int) -> ir.Value:
        match dtype:
            case "float16":
                return self.b.fpext(value, vector(F32, lanes))
            case "bfloat16":
                wide = self.b.zext(value, vector(I32, lanes))
                return self.b.bitcast(self.b.shl(wide, int_constant(16, lanes)), vector(F32, lanes))
            case _:
                return value

    def _narrow(self, value: ir.Value, dtype: str, lanes: int) -> ir.Value:
        match dtype:
            case "float16":
                return self.b.fptrunc(value, vector(_STORED["float16"], lanes))
            case "bfloat16":
                upper = self.b.lshr(bfloat16_bits(self.b, value, lanes), int_constant(16, lanes))
                return self.b.trunc(upper, vector(I16, lanes))
            case _:
                return value

    def phi(self, values: Mapping[ir.Block, ir.Value]) -> ir.Value:
        """The value that came with the block that was left last."""
        first = next(iter(values.values()))
        node = self.b.phi(first.type)
        for block, value in values.items():
            node.add_incoming(value, block)
        return node

    def zeros(self, lanes: int) -> ir.Value:
        return float_constant(0.0, lanes)


def _element_suffix(dtype: str) -> str:
    return {"float32": "f32", "float16": "f16", "bfloat16": "i16"}[dtype]


__all__ = ["I1", "PTR", "Code"]
