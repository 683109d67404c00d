"""Regions of a function in a form that equal parts share: equal layers are partitioned once.

A region is one value, or several, with all operands down to those in memory. Its signature has each value's operation,
shape, element type and, in memory, strides, but no names: one workload computes all regions of one signature.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autosched.tracing.values.reads import ALIGNMENT_BYTES
from autosched.tracing.values.values import (
    Arange,
    Gathered,
    Joined,
    Leaf,
    Padded,
    Pointwise,
    Product,
    Reduced,
    Scanned,
    Segments,
    Value,
    View,
    ViewKind,
)
from autosched.tracing.values.views import Permutation, Reshape, Selection, Slicing
from search_spaces.workloads.dtypes import dtype
from search_spaces.workloads.strides import dense_strides

Strides = tuple[int, ...]
# Values are asked for as they are, and with each of a few others stored.
_REGIONS_KEPT = 8


@dataclass(frozen=True)
class Region:
    """`members`: the values, their operands, and those in memory, each once, in an order that structure determines.
    `values`: number of those to compute.

    `products`: number of products computed. `read` and `computed`: the other members in memory, and those that are not.
    `starts`: by the number of a member in memory, the elements before all
    views of it that are read; the signature leaves these out, so that the first step of a recurrence, which reads x[0],
    and the tenth, which reads x[9], are one region.
    """

    members: tuple[Value, ...]
    signature: tuple[int, ...]
    products: int
    values: int
    starts: tuple[tuple[int, int], ...]
    read: tuple[Value, ...]
    computed: tuple[Value, ...]

    def is_of(self, stored: Container[Value]) -> bool:
        """True if it is the region of its values with these in memory."""
        return all(v in stored for v in self.read) and not any(v in stored for v in self.computed)

    def same_place(self, value: Value, other: Region) -> Value:
        """The value of this region that corresponds to `value` in another one of the same signature."""
        return self.members[other.members.index(value)]


@dataclass
class Structures:
    """Numbers for the structure of values, equal where their operations and operands are.

    `_regions`: those found last of each group of values.
    """

    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _known: dict[Value, int] = field(default_factory=dict)
    _regions: dict[tuple[Value, ...], deque[Region]] = field(default_factory=dict)

    def region(self, values: Sequence[Value], stored: Mapping[Value, Strides]) -> Region:
        """The region of these values, stored or not."""
        known = self._regions.setdefault(tuple(values), deque(maxlen=_REGIONS_KEPT))
        found = next((region for region in known if region.is_of(stored)), None)
        if found is None:
            found = self._found(values, stored)
            known.append(found)
        return found

    def _found(self, values: Sequence[Value], stored: Mapping[Value, Strides]) -> Region:
        wanted = dict.fromkeys(values)
        members = [*wanted, *(v for v in cone(values, stored) if v not in wanted)]
        places = {v: n for n, v in enumerate(members)}
        inside = {v for v in members if v in wanted or v not in stored}
        slices = _slices(members, inside, stored)
        firsts: dict[Value, _Slice] = {}
        for part in slices.values():
            firsts[part.whole] = min(firsts.get(part.whole, part), part, key=lambda each: each.start)
        starts: list[tuple[int, int]] = []
        signature = [len(wanted)]
        for number, member in enumerate(members):
            if member not in inside:
                own: tuple[Hashable, ...] = (member.shape, member.dtype, stored[member], member.constant)
                if member in firsts:
                    starts.append((number, firsts[member].start * firsts[member].stride))
                    # The alignment of its first element, which decides how kernels read it (`values.reads`).
                    own = (*own, starts[-1][1] * dtype(member.dtype).bytes % ALIGNMENT_BYTES)
                signature.append(self._number(own))
            elif isinstance(member, View) and member in slices:
                kind = _earlier(member.kind, firsts[slices[member].whole].start)
                signature += [self._number((member.shape, kind, member.argument.shape)), places[member.argument]]
            else:
                signature += [self._of(member), *(places[o] for o in member.operands)]
        # Arguments are read in their order.
        arguments = [v for v in members if isinstance(v, Leaf) and v.position is not None]
        signature += [places[v] for v in sorted(arguments, key=lambda v: v.position or 0)]
        others = members[len(wanted) :]
        return Region(
            members=tuple(members),
            signature=tuple(signature),
            products=sum(isinstance(v, Product) for v in inside),
            values=len(wanted),
            starts=tuple(starts),
            read=tuple(v for v in others if v not in inside),
            computed=tuple(v for v in others if v in inside),
        )

    def _number(self, what: Hashable) -> int:
        return self._numbers.setdefault(what, len(self._numbers))

    def _of(self, value: Value) -> int:
        if value not in self._known:
            own = (value.shape, value.dtype, value.strides, _meaning(value))
            self._known[value] = self._number(own)
        return self._known[value]


@dataclass(frozen=True)
class _Slice:
    """A slice of a tensor in memory, possibly with dimensions reordered, reversed or reshaped.

    `shape`: that `dim` is a dimension of. `stride`: elements between two positions along it, negative where reversed.
    """

    whole: Value
    shape: tuple[int, ...]
    dim: int
    stride: int
    start: int


def _slices(members: Sequence[Value], inside: Container[Value], stored: Mapping[Value, Strides]) -> dict[Value, _Slice]:
    """The slices of tensors in memory that are read through slices only, along one dimension. `inside`: computed
    members.
    """
    found = {m: part for m in members if m in inside and (part := _slice(m, inside, stored)) is not None}
    if not found:
        return {}
    readers: dict[Value, list[Value]] = {}
    for member in members:
        for operand in member.operands if member in inside else ():
            readers.setdefault(operand, []).append(member)
    dims: dict[Value, set[tuple[tuple[int, ...], int, int]]] = {}
    for part in found.values():
        dims.setdefault(part.whole, set()).add((part.shape, part.dim, part.stride))
    return {
        m: part for m, part in found.items() if len(dims[part.whole]) == 1 and _is_sliced(part.whole, readers, found)
    }


def _is_sliced(whole: Value, readers: Mapping[Value, Sequence[Value]], found: Container[Value]) -> bool:
    # One without readers is what the kernel stores, whole.
    return whole in readers and all(
        r in found or (_is_reordered(r) and _is_sliced(r, readers, found)) for r in readers[whole]
    )


def _slice(member: Value, inside: Container[Value], stored: Mapping[Value, Strides]) -> _Slice | None:
    match member:
        case View(argument=argument, kind=Slicing(dim=dim, start=start, step=step)) if step > 0:
            pass
        case View(argument=argument, kind=Selection(dim=dim, at=start)):
            pass
        case _:
            return None
    step = 1
    if argument in inside and isinstance(argument, View) and _is_reversed(argument):
        assert isinstance(argument.kind, Slicing)
        step, argument = -1 if argument.kind.dim == dim else 1, argument.argument
    match argument:
        case _ if argument not in inside:
            return _Slice(argument, argument.shape, dim, step * stored[argument][dim], start)
        case View(argument=whole, kind=Permutation(order=order)) if whole not in inside:
            return _Slice(whole, whole.shape, order[dim], step * stored[whole][order[dim]], start)
        case View(argument=whole, kind=Reshape()) if whole not in inside and stored[whole] == dense_strides(
            whole.shape
        ):
            return _Slice(whole, argument.shape, dim, step * dense_strides(argument.shape)[dim], start)
        case _:
            return None


def _is_reordered(value: Value) -> bool:
    return isinstance(value, View) and (isinstance(value.kind, Permutation | Reshape) or _is_reversed(value))


def _is_reversed(view: View) -> bool:
    """True for all positions of the argument, those along one dimension from the last to the first."""
    return isinstance(view.kind, Slicing) and view.kind.step == -1 and view.shape == view.argument.shape


def _earlier(kind: ViewKind, by: int) -> ViewKind:
    """A slice shifted `by` positions towards the start."""
    match kind:
        case Slicing():
            return replace(kind, start=kind.start - by)
        case Selection():
            return replace(kind, at=kind.at - by)
        case _:
            return kind


def below(results: Sequence[Value], known: Container[Value] = ()) -> Iterator[Value]:
    """All values the results depend on, and they themselves, each after its operands; but for the `known` ones, and
    what only these depend on.
    """
    seen: set[Value] = set()
    stack: list[tuple[Value, bool]] = [(r, False) for r in reversed(results)]
    while stack:
        value, done = stack.pop()
        if done:
            yield value
        elif value not in seen and value not in known:
            seen.add(value)
            stack.append((value, True))
            stack += [(o, False) for o in reversed(value.operands)]


def cone(values: Iterable[Value], stored: Container[Value]) -> list[Value]:
    """The values that the kernel of these values computes and reads."""
    found: dict[Value, None] = {}
    rest = [o for value in values for o in value.operands]
    while rest:
        here = rest.pop()
        if here in found:
            continue
        found[here] = None
        if here not in stored:
            rest += here.operands
    return list(found)


def _meaning(value: Value) -> Hashable:
    """A value's operation, without the names of its operands."""
    match value:
        case Pointwise(expression=expression):
            return expression
        case Arange(start=start, step=step):
            return "arange", start, step
        case Reduced(operator=operator, dims=dims):
            return operator, dims
        case Scanned(operation=operation, output=output):
            return "scan", operation.combine, operation.dim, operation.reverse, output
        case Product(precision=precision):
            return "product", value.a_loops, value.b_loops, precision
        case Gathered(index=index):
            return "gathered", tuple(i if isinstance(i, int) else None for i in index)
        case Segments():
            return "segments"
        case Padded(before=before, fill=fill):
            return "padded", before, fill
        case Joined(dim=dim):
            return "joined", dim
        case View(argument=argument, kind=kind):
            return kind, argument.shape
        case _:
            return id(value)
