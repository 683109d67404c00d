"""What a kernel computes in a form that equal parts of a function share: equal layers are cut once.

A region is one value, or several, with all that they are computed from, down to what is in memory. Its signature says
what every value in it does, its shape and element type, and where what is in memory lies, but no names: regions of one
signature are computed by the same workload.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autosched.tracing.values.values import (
    Counted,
    Joined,
    Leaf,
    LookedUp,
    Padded,
    Pointwise,
    Product,
    Reduced,
    Scanned,
    Value,
    View,
)

Strides = tuple[int, ...]


@dataclass(frozen=True)
class Region:
    """`members`: the values, what they are computed from, and what that reads, each once; their order follows from
    structure. `values`: how many of them are to be computed.

    `products`: how many products are among what is computed.
    """

    members: tuple[Value, ...]
    signature: tuple[int, ...]
    products: int
    values: int = 1

    def same_place(self, value: Value, other: Region) -> Value:
        """The value of this region that stands where `value` does in another one of the same signature."""
        return self.members[other.members.index(value)]


@dataclass
class Structures:
    """Numbers for what values do, equal where they do the same with what they are given."""

    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _known: dict[Value, int] = field(default_factory=dict)

    def region(self, values: Sequence[Value], stored: Mapping[Value, Strides]) -> Region:
        """The region of these values, whether they are stored themselves or not."""
        wanted = dict.fromkeys(values)
        members = [*wanted, *(v for v in cone(values, stored) if v not in wanted)]
        places = {v: n for n, v in enumerate(members)}
        signature = [len(wanted)]
        for member in members:
            if member not in wanted and member in stored:
                signature.append(self._number((member.shape, member.dtype, stored[member])))
            else:
                signature += [self._of(member), *(places[o] for o in member.operands)]
        # Arguments are read in their order.
        arguments = [v for v in members if isinstance(v, Leaf) and v.position is not None]
        signature += [places[v] for v in sorted(arguments, key=lambda v: v.position or 0)]
        inside = (v for v in members if v in wanted or v not in stored)
        return Region(tuple(members), tuple(signature), sum(isinstance(v, Product) for v in inside), len(wanted))

    def _number(self, what: Hashable) -> int:
        return self._numbers.setdefault(what, len(self._numbers))

    def _of(self, value: Value) -> int:
        if value not in self._known:
            own = (value.shape, value.dtype, _meaning(value))
            self._known[value] = self._number(own)
        return self._known[value]


def cone(values: Iterable[Value], stored: Container[Value]) -> list[Value]:
    """What the kernel of these values computes and reads."""
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
    """What a value is, of operands that are not named."""
    match value:
        case Pointwise(expression=expression):
            return expression
        case Counted(start=start, step=step):
            return "counted", start, step
        case Reduced(operator=operator, dims=dims):
            return operator, dims
        case Scanned(operation=operation, output=output):
            return "scan", operation.combine, operation.dim, operation.reverse, output
        case Product(precision=precision):
            return "product", precision
        case LookedUp(index=index):
            return "looked up", tuple(i if isinstance(i, int) else None for i in index)
        case Padded(before=before, fill=fill):
            return "padded", before, fill
        case Joined(dim=dim):
            return "joined", dim
        case View(argument=argument, kind=kind):
            return kind, argument.shape
        case _:
            return id(value)
