"""Which tensors of a traced function are stored, so that one kernel computes each: the cheapest cut that is found.

What is between two stored tensors is computed in registers, again in every kernel that needs it. To begin with only
the results are stored. Where one kernel cannot compute a stored value, the tensor is stored too that makes it possible
at the least cost; then whatever saves computing something twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from autosched.tracing.assembly import Assembled, assemble
from autosched.tracing.elements import NotOneKernelError
from autosched.tracing.operands import chain, placed
from autosched.tracing.values import Eager, Product, Source, Value, View
from search_spaces import Workload
from search_spaces.strides import dense_strides

# What a cut is judged by: not a device's figures but their proportions, which are alike on all of them. A launch takes
# as long as moving 8 MB; a byte from memory, as long as 10 operations of pointwise work or 150 of a dot.
_LAUNCH_BYTES = 8e6
_FLOPS_PER_BYTE = 10.0
_DOT_FLOPS_PER_BYTE = 150.0


class NoKernelError(Exception):
    """No kernel computes this value, whatever is stored."""

    def __init__(self, value: Value, reason: str) -> None:
        super().__init__(reason)
        self.value = value


@dataclass(frozen=True)
class Step:
    """One thing to run: a kernel that computes `value`, or a call of PyTorch."""

    value: Value
    assembled: Assembled | None = None

    @property
    def text(self) -> str:
        if self.assembled is not None:
            given = ", ".join(f"x{n} of {v.value.name}" for n, v in enumerate(self.assembled.inputs))
            return f"{self.value.name}, from {given}\n{self.assembled.workload}"
        assert isinstance(self.value, Eager)
        line = f" ({self.value.line})" if self.value.line else ""
        return f"PyTorch's {self.value.operation.target}{line}: {self.value.operation.why}"


@dataclass
class Partition:
    """The steps of a function, each after those that it needs.

    `fused_products`: see `assembly.assemble`.
    """

    name: str
    results: Sequence[Value]
    fused_products: bool = False
    steps: list[Step] = field(default_factory=list)
    _stored: dict[Value, tuple[int, ...]] = field(default_factory=dict)
    _assembled: dict[tuple[Value, frozenset[Value]], Assembled | NotOneKernelError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises NoKernelError where a value cannot be computed even when all it is computed from is stored."""
        for value in _below(self.results):
            if isinstance(value, Source):
                self._stored[value] = value.strides
            elif isinstance(value, Eager):
                self._store(value)
                for operand in value.operands:
                    self._store(self.stored_as(operand))
        for result in self.results:
            self._store(self.stored_as(result))
        self._cut()
        self._share()
        self.steps = [self._step(v) for v in _below(self.results) if v in self._stored and not isinstance(v, Source)]

    def stored_as(self, result: Value) -> Value:
        """What is in memory for a result, or for what PyTorch is given: what it is a view of, or else itself."""
        if not isinstance(result, View):
            return result
        views = chain(result, self._stored)
        base = views[-1].argument
        strides = self._stored.get(base, base.memory_strides)
        return result if placed(views, strides) is None else base

    def _store(self, value: Value) -> None:
        if value not in self._stored:
            self._stored[value] = value.memory_strides

    def _step(self, value: Value) -> Step:
        return Step(value) if isinstance(value, Eager) else Step(value, self._required(value))

    def _required(self, value: Value) -> Assembled:
        made = self._kernel(value)
        assert isinstance(made, Assembled)
        return made

    def _kernel(self, value: Value, *also: Value) -> Assembled | NotOneKernelError:
        """The kernel of a value, with `also` stored; or why there is none."""
        stored = {v: s for v, s in self._stored.items() if v is not value}
        stored |= {v: dense_strides(v.shape) for v in also if v is not value}
        cone = frozenset(v for v in self._cone(value, frozenset(also)) if v in stored)
        key = (value, cone)
        if key not in self._assembled:
            try:
                self._assembled[key] = assemble(value, stored, f"{self.name}_{value.name}", self.fused_products)
            except NotOneKernelError as error:
                self._assembled[key] = error
        return self._assembled[key]

    def _cone(self, value: Value, also: frozenset[Value] = frozenset()) -> list[Value]:
        """What the kernel of a value computes and reads."""
        found: dict[Value, None] = {}
        rest = list(value.operands)
        while rest:
            here = rest.pop()
            if here in found:
                continue
            found[here] = None
            if here not in self._stored and here not in also:
                rest += here.operands
        return list(found)

    def _cut(self) -> None:
        """Store values until one kernel computes every stored one."""
        waiting = [v for v in self._stored if not isinstance(v, Source | Eager)]
        while waiting:
            value = waiting.pop()
            made = self._kernel(value)
            if isinstance(made, Assembled):
                continue
            chosen = self._cheapest(value) or made.stored
            if chosen is None or chosen in self._stored:
                chosen = self._operand_to_store(value)
                if chosen is None:
                    raise NoKernelError(value, str(made))
            self._store(chosen)
            waiting += [value, chosen]

    def _operand_to_store(self, value: Value) -> Value | None:
        """The first operand that is not in memory: computed, or else a view, which is then copied into dense memory."""
        missing = [o for o in value.operands if o.operands and o not in self._stored]
        return next((o for o in missing if _is_computed(o)), next(iter(missing), None))

    def _cheapest(self, value: Value) -> Value | None:
        """The value whose storing makes one kernel of `value`, at the least cost of both; None where none does."""
        best: tuple[float, Value] | None = None
        for candidate in self._cone(value):
            if candidate in self._stored or not _is_computed(candidate):
                continue
            made = self._kernel(value, candidate)
            if not isinstance(made, Assembled):
                continue
            before = self._kernel(candidate)
            # One that takes several kernels itself costs at least what it reads and writes, and a launch more.
            first = cost(before.workload) if isinstance(before, Assembled) else self._least_cost(candidate)
            total = cost(made.workload) + first
            if best is None or total < best[0]:
                best = (total, candidate)
        return best[1] if best else None

    def _least_cost(self, value: Value) -> float:
        """What several kernels that compute the value take at least: its memory once more, and a launch."""
        cone = [value, *self._cone(value)]
        moved = sum(v.bytes for v in cone if v in self._stored) + 3 * value.bytes
        dots = sum(2.0 * v.elements * v.a.shape[-1] for v in cone if isinstance(v, Product) and v not in self._stored)
        return 2 * _LAUNCH_BYTES + max(moved, dots / _DOT_FLOPS_PER_BYTE)

    def _share(self) -> None:
        """Store what several kernels compute, as long as that makes all of them together cheaper."""
        while candidate := self._worth_storing():
            self._store(candidate)

    def _worth_storing(self) -> Value | None:
        users: dict[Value, list[Value]] = {}
        for value in self._stored:
            if not isinstance(value, Source | Eager):
                for inner in self._cone(value):
                    if inner not in self._stored and _is_computed(inner):
                        users.setdefault(inner, []).append(value)
        best: tuple[float, Value] | None = None
        for candidate, kernels in users.items():
            if len(kernels) < 2:
                continue
            saved = self._saved(candidate, kernels)
            if saved > 0 and (best is None or saved > best[0]):
                best = (saved, candidate)
        return best[1] if best else None

    def _saved(self, candidate: Value, kernels: Sequence[Value]) -> float:
        """What storing the candidate saves in these kernels, less what it costs."""
        own = self._kernel(candidate)
        if not isinstance(own, Assembled):
            return 0.0
        saved = -cost(own.workload)
        for value in kernels:
            after = self._kernel(value, candidate)
            if not isinstance(after, Assembled):
                return 0.0
            saved += cost(self._required(value).workload) - cost(after.workload)
        return saved


def cost(workload: Workload) -> float:
    """How long a kernel takes, as the number of bytes that memory moves meanwhile."""
    dots = sum(2.0 * s.points for s in workload.stages if s.is_contraction)
    rest = workload.flops - dots
    return _LAUNCH_BYTES + max(workload.min_bytes, rest / _FLOPS_PER_BYTE, dots / _DOT_FLOPS_PER_BYTE)


def _is_computed(value: Value) -> bool:
    """Whether it may be stored to be computed once: what only renames elements is not."""
    return bool(value.operands) and not isinstance(value, View)


def _below(results: Sequence[Value]) -> Iterator[Value]:
    """Everything the results are computed from, and they themselves, each after what it needs."""
    seen: set[Value] = set()
    stack: list[tuple[Value, bool]] = [(r, False) for r in reversed(results)]
    while stack:
        value, done = stack.pop()
        if done:
            yield value
        elif value not in seen:
            seen.add(value)
            stack.append((value, True))
            stack += [(o, False) for o in reversed(value.operands)]
