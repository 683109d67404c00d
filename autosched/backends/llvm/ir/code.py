"""Writes LLVM IR: loops, addresses, and memory accesses that convert between stored and computed element types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from autosched.backends.llvm.ir import float8, integers
from autosched.backends.llvm.ir.text import F16, F32, I8, I16, I32, I64, Block, Builder, IRValue, Mask, Phi
from autosched.backends.llvm.ir.values import (
    bfloat16_bits,
    broadcast,
    condition,
    constant_mask,
    float_constant,
    in_order,
    index,
    int_constant,
    larger,
    minus,
    overload,
    plus,
    poison,
    smaller,
    times,
    truth,
    vector,
)
from search_spaces.programs.addressing import Address, Dimension, address
from search_spaces.programs.statements import For, Let, Load
from search_spaces.programs.tile_program import Buffer
from search_spaces.programs.tiles import Bound, Slice
from search_spaces.workloads.dtypes import DTYPES, is_float
from search_spaces.workloads.expressions.affine import Affine

# Elements in memory. bfloat16 is handled as the upper half of a float32, bool is a byte that is 0 or not.
_STORED: Mapping[str, str] = {
    "float32": F32,
    "float16": F16,
    "bfloat16": I16,
    "float8_e4m3fn": I8,
    "float8_e5m2": I8,
    "int8": I8,
    "int16": I16,
    "int32": I32,
    "int64": I64,
    "uint8": I8,
    "bool": I8,
}
# Types that a float32 becomes in memory without a truncation of integers. With one, LLVM 22 makes the masked store of a
# single lane a store of that lane as it was before: of four bytes where two or one are meant, on processors with
# AVX-512 (later passes do not recognise the truncating store that it makes first).
_NOT_TRUNCATED = frozenset({"float32", "float16", "bool"})


@dataclass
class Code:
    """An IR builder with the common state of the printers of one kernel.

    `variables`: the grid and loop variables in scope; `extents`: their extents; `base`: the address of every buffer;
    `lanes`: the float32 elements of a vector; `marks`: for each tile that marks iterations, the address of its first
    element, its stride and its element type.
    """

    b: Builder
    lanes: int
    buffers: Mapping[str, Buffer]
    base: Mapping[str, IRValue]
    scratch: IRValue
    extents: Mapping[str, int]
    variables: dict[str, IRValue] = field(default_factory=dict)
    scratch_bytes: int = 0
    marks: dict[str, tuple[IRValue, int, str]] = field(default_factory=dict)

    @contextmanager
    def loop(self, extent: IRValue, name: str, step: int = 1) -> Iterator[IRValue]:
        """for name from 0 below extent by step; the body runs at least once, without a loop if just once."""
        b = self.b
        if extent.number is not None and extent.number <= step:
            yield index(0)
            return
        before, body = b.block, b.append_basic_block(name)
        b.branch(body)
        b.position_at_end(body)
        value = b.phi(I64, name)
        value.add_incoming(index(0), before)
        yield value
        following = b.add(value, index(step))
        value.add_incoming(following, b.block)
        after = b.append_basic_block(f"{name}.end")
        b.cbranch(b.icmp_signed("<", following, extent), body, after)
        b.position_at_end(after)

    @contextmanager
    def turns(self, s: For) -> Iterator[None]:
        """for the variable of a loop, which is in scope then, in its iterations: without those that are of no use, or
        that a tile does not mark."""
        with self._useful(s) as value:
            self.variables[s.variable] = value
            if s.marks:
                with self.when(self._is_marked(s, value), f"{s.variable}.marked"):
                    yield
            else:
                yield
        del self.variables[s.variable]

    @contextmanager
    def _useful(self, s: For) -> Iterator[IRValue]:
        b, first, end = self.b, index(0), self.trips(s.extent, s.bound, s.variable)
        if not s.useful:
            with self.loop(end, s.variable) as value:
                yield value
            return
        for bound in s.useful:
            step, rest = s.along(bound)
            if step > 0:
                left = minus(b, index(bound.size + step - 1), self.affine(rest))
                end = smaller(b, end, b.sdiv(left, index(step)))
            elif step < 0:
                before = plus(b, self.affine(rest), index(-step - bound.size))
                first = larger(b, first, b.sdiv(before, index(-step)))
        count = minus(b, end, first)
        with self.when(b.icmp_signed(">", count, index(0)), f"{s.variable}.some"), self.loop(count, s.variable) as turn:
            yield plus(b, first, turn)

    def hold_marks(self, s: Load) -> None:
        """Record the address and stride of a block mask, which loops read from memory."""
        place = self.place(s.buffer, s.slices)
        dtype, first = place.buffer.dtype, self.offset(place, lambda d: self.affine(d.slice.start))
        address = self.address(self.base[s.buffer], first, dtype)
        self.marks[s.dst.name] = (address, place.between(s.dst.axes[0]), dtype)

    def _is_marked(self, s: For, iteration: IRValue) -> IRValue:
        first, between, dtype = self.marks[s.marks]
        mark = self.load(self.address(first, self.scaled(iteration, between), dtype), dtype, 1)
        return condition(self.b, mark, 1)

    @contextmanager
    def when(self, condition: IRValue, name: str) -> Iterator[None]:
        """The body only when the condition holds."""
        b = self.b
        then, after = b.append_basic_block(name), b.append_basic_block(f"{name}.end")
        b.cbranch(condition, then, after)
        b.position_at_end(then)
        yield
        b.branch(after)
        b.position_at_end(after)

    @contextmanager
    def choice(self, condition: IRValue, name: str) -> Iterator[Callable[[], None]]:
        """The body up to a call of what is yielded if the condition holds, else the rest of it."""
        b = self.b
        then, other, after = (b.append_basic_block(f"{name}{part}") for part in ("", ".not", ".end"))
        b.cbranch(condition, then, other)
        b.position_at_end(then)

        def otherwise() -> None:
            b.branch(after)
            b.position_at_end(other)

        yield otherwise
        b.branch(after)
        b.position_at_end(after)

    def bind(self, s: Let, value: IRValue) -> None:
        """Bind a variable to data: the nearest of its values to this one."""
        self.variables[s.variable] = smaller(self.b, larger(self.b, value, index(0)), index(s.extent - 1))

    def affine(self, form: Affine) -> IRValue:
        """The value of an affine form of the variables in scope."""
        total = index(0)
        for name, coefficient in form.terms:
            total = plus(self.b, total, self.scaled(self.variables[name], coefficient))
        return plus(self.b, total, index(form.offset))

    def scaled(self, value: IRValue, factor: int) -> IRValue:
        return times(self.b, value, factor)

    def place(self, buffer: str, at: Sequence[Slice | str]) -> Address:
        """The address of a load, a store or a look-up in a buffer."""
        return address(self.buffers[buffer], at, self.extents)

    def offset(self, place: Address, start_of: Callable[[Dimension], IRValue]) -> IRValue:
        """Elements from the buffer's first one to the start of a place, given the start along every dimension."""
        offset = index(0)
        for d in place.dimensions:
            offset = plus(self.b, offset, self.scaled(start_of(d), d.stride))
        return offset

    def start(self, form: Affine, extent: int, size: int) -> IRValue:
        """Start of a piece of `extent` in a dimension of `size`, moved back if the piece would reach beyond the end.

        Elements common to two overlapping pieces are computed twice, to the same values, so no second, masked version
        of the code is needed. A piece longer than the dimension begins at 0.
        """
        if extent >= size:
            return index(0)
        value = self.affine(form)
        if form.maximum(self.extents) + extent <= size:
            return value
        return smaller(self.b, value, index(size - extent))

    def trips(self, extent: int, bound: Bound | None, variable: str) -> IRValue:
        """Number of iterations of a loop with this bound, whose form grows with the loop's variable."""
        if bound is None:
            return index(extent)
        step = dict(bound.start.terms)[variable]
        rest = Affine.of(*((v, c) for v, c in bound.start.terms if v != variable), offset=bound.start.offset)
        if rest.maximum(self.extents) + step * (extent - 1) < bound.size:
            return index(extent)
        left = minus(self.b, index(bound.size + step - 1), self.affine(rest))
        iterations = index(left.number // step) if left.number is not None else self.b.sdiv(left, index(step))
        return smaller(self.b, iterations, index(extent))

    def remaining(self, form: Affine, extent: int, size: int) -> IRValue:
        """Number of positions below `size`, of `extent` from the form's value on."""
        if form.maximum(self.extents) + extent <= size:
            return index(extent)
        return smaller(self.b, minus(self.b, index(size), self.affine(form)), index(extent))

    def address(self, base: IRValue, offset: IRValue | int, dtype: str = "float32") -> IRValue:
        """base + offset elements."""
        at = index(offset) if isinstance(offset, int) else offset
        return base if at.number == 0 else self.b.gep(base, at, _STORED[dtype])

    def anywhere(self, buffer: str, offset: IRValue) -> IRValue:
        """The address `offset` elements after a buffer's first, which may be outside of it."""
        return self.b.gep(self.base[buffer], offset, _STORED[self.buffers[buffer].dtype], inbounds=False)

    def take_scratch(self, elements: int) -> IRValue:
        """Address of `elements` float32 elements of this thread's scratch memory, aligned to a page and staggered."""
        offset = self.scratch_bytes
        # 5 cache lines of stagger, so that packed operands do not start in the same cache set.
        self.scratch_bytes += -(-(elements * 4 + 64) // 4096) * 4096 + 320
        return self.b.gep(self.scratch, index(offset), I8) if offset else self.scratch

    def load(
        self, address: IRValue, dtype: str, lanes: int, mask: IRValue | None = None, integral: bool = False
    ) -> IRValue:
        """`lanes` neighbouring elements as float32, or `integral`; masked-off lanes are 0."""
        stored = vector(_STORED[dtype], lanes)
        if mask is None:
            value = self.b.load(address, stored, DTYPES[dtype].bytes)
        else:
            name = f"llvm.masked.load.{overload(lanes, _element_suffix(dtype))}.p0"
            align, zero = int_constant(DTYPES[dtype].bytes, 1), IRValue(stored, "zeroinitializer")
            value = self.b.call(name, stored, [address, align, mask, zero])
        return self._widen(value, dtype, lanes, integral)

    def load_apart(self, address: IRValue, stride: int, dtype: str, present: int, integral: bool = False) -> IRValue:
        """So many elements, `stride` apart, as the first lanes of a vector, converted as by `load`.

        The other lanes are arbitrary.
        """
        if stride == 0:
            return broadcast(self.b, self.load(address, dtype, 1, integral=integral), self.lanes)
        offsets = [index(lane * stride) for lane in range(min(present, self.lanes))]
        return self.load_each(address, offsets, dtype, self.lanes, integral)

    def load_each(
        self, base: IRValue, offsets: Sequence[IRValue], dtype: str, lanes: int | None = None, integral: bool = False
    ) -> IRValue:
        """The elements at these offsets as the first lanes of a vector, converted as by `load`, loaded one by one."""
        lanes = lanes or len(offsets)
        stored = poison(lanes, _STORED[dtype])
        for lane, offset in enumerate(offsets):
            element = self.b.load(self.address(base, offset, dtype), _STORED[dtype], DTYPES[dtype].bytes)
            stored = self.b.insert_element(stored, element, lane)
        return self._widen(stored, dtype, lanes, integral)

    def load_where(
        self, base: IRValue, offsets: IRValue, dtype: str, mask: IRValue | None, integral: bool = False
    ) -> IRValue:
        """A vector of elements, each of a lane that is not masked off from an offset of its own; the others are 0."""
        lanes, stored = self.lanes, vector(_STORED[dtype], self.lanes)
        every = constant_mask(lanes, lanes) if mask is None else mask
        name = f"llvm.masked.gather.{overload(lanes, _element_suffix(dtype))}.{overload(lanes, 'p0')}"
        align, zero = int_constant(DTYPES[dtype].bytes, 1), IRValue(stored, "zeroinitializer")
        found = self.b.call(name, stored, [self.b.gep(base, offsets, _STORED[dtype]), align, every, zero])
        return self._widen(found, dtype, lanes, integral)

    def store_each(self, value: IRValue, base: IRValue, offsets: IRValue, dtype: str, mask: IRValue | None) -> None:
        """Write a vector, each lane that is not masked off to an offset of its own."""
        lanes = self.lanes
        addresses = self.b.gep(base, offsets, _STORED[dtype])
        every = constant_mask(lanes, lanes) if mask is None else mask
        name = f"llvm.masked.scatter.{overload(lanes, _element_suffix(dtype))}.{overload(lanes, 'p0')}"
        align = int_constant(DTYPES[dtype].bytes, 1)
        self.b.call_void(name, [self._narrow(value, dtype, lanes), addresses, align, every])

    def store(
        self,
        value: IRValue,
        address: IRValue,
        dtype: str,
        lanes: int,
        mask: IRValue | None = None,
        streaming: bool = False,
    ) -> None:
        """Write `lanes` neighbouring elements; `streaming` needs whole, aligned vectors of float32."""
        narrow = self._narrow(value, dtype, lanes)
        if isinstance(mask, Mask) and mask.active == 1 and dtype not in _NOT_TRUNCATED:
            narrow, mask, lanes = self.b.extract_element(narrow, 0, _STORED[dtype]), None, 1
        if mask is not None:
            name = f"llvm.masked.store.{overload(lanes, _element_suffix(dtype))}.p0"
            self.b.call_void(name, [narrow, address, int_constant(DTYPES[dtype].bytes, 1), mask])
            return
        self.b.store(narrow, address, lanes * 4 if streaming else DTYPES[dtype].bytes, nontemporal=streaming)

    def prefetch(self, address: IRValue, write: bool = False) -> None:
        # The last two arguments: into every level of cache, and of data.
        self.b.call_void("llvm.prefetch.p0", [address, *(int_constant(v, 1) for v in (int(write), 3, 1))])

    def position(self, first: IRValue, lanes: int, integral: bool = False) -> IRValue:
        """first, first + 1 … as float32, or `integral`, one in each lane."""
        if integral:
            return self.b.add(broadcast(self.b, first, lanes), in_order(lanes, I64))
        start = self.b.trunc(first, I32) if first.number is None else int_constant(first.number, 1)
        numbers = broadcast(self.b, start, lanes)
        if lanes > 1:
            numbers = self.b.add(numbers, in_order(lanes, I32))
        return self.b.sitofp(numbers, vector(F32, lanes))

    def mask(self, active: int) -> Mask | None:
        """The mask of a vector with `active` valid lanes, None if all are."""
        return None if active >= self.lanes else constant_mask(active, self.lanes)

    def _widen(self, value: IRValue, dtype: str, lanes: int, integral: bool) -> IRValue:
        if integral:
            return integers.widened(self.b, value, dtype, lanes)
        match dtype:
            case "float16":
                return self.b.fpext(value, vector(F32, lanes))
            case "bfloat16":
                wide = self.b.zext(value, vector(I32, lanes))
                return self.b.bitcast(self.b.shl(wide, int_constant(16, lanes)), vector(F32, lanes))
            case "float8_e4m3fn" | "float8_e5m2":
                return float8.widened(self.b, value, dtype, lanes)
            case "int8" | "int16" | "int32" | "int64":
                return self.b.sitofp(value, vector(F32, lanes))
            case "uint8":
                return self.b.uitofp(value, vector(F32, lanes))
            case "bool":
                is_true = self.b.icmp_signed("!=", value, int_constant(0, lanes, I8))
                return truth(self.b, is_true, lanes)
            case _:
                return value

    def _narrow(self, value: IRValue, dtype: str, lanes: int) -> IRValue:
        if integers.is_integral(value):
            if not is_float(dtype):
                return integers.narrowed(self.b, value, _STORED[dtype], dtype, lanes)
            value = integers.to_float(self.b, value, lanes)
        match dtype:
            case "float16":
                return self.b.fptrunc(value, vector(_STORED["float16"], lanes))
            case "bfloat16":
                upper = self.b.lshr(bfloat16_bits(self.b, value, lanes), int_constant(16, lanes))
                return self.b.trunc(upper, vector(I16, lanes))
            case "float8_e4m3fn" | "float8_e5m2":
                return float8.narrowed(self.b, value, dtype, lanes)
            case "int8" | "int16" | "uint8":
                return self.b.trunc(self.b.fptosi(value, vector(I32, lanes)), vector(_STORED[dtype], lanes))
            case "int32" | "int64":
                return self.b.fptosi(value, vector(_STORED[dtype], lanes))
            case "bool":
                return self.b.zext(condition(self.b, value, lanes), vector(I8, lanes))
            case _:
                return value

    def phi(self, values: Mapping[Block, IRValue]) -> Phi:
        """The value from the block that was left last."""
        first = next(iter(values.values()))
        node = self.b.phi(first.type)
        for block, value in values.items():
            node.add_incoming(value, block)
        return node

    def zeros(self, lanes: int) -> IRValue:
        return float_constant(0.0, lanes)


def _element_suffix(dtype: str) -> str:
    return {"float32": "f32", "float16": "f16"}.get(dtype, _STORED[dtype])
