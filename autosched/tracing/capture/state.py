"""Side effects of a function: tensors changed in place or bound anew, and their slots.

    self.hidden = tanh(x + self.hidden)    →    made = tanh(x + hidden), with self.hidden read in every call
    self.seen.add_(1)                           raised = seen + 1

The new value is one more result. After all results were computed it is written: `self.hidden = made`,
`self.seen.copy_(raised)`. The capture itself changes no tensor of the user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import CellType
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from autosched.tracing.capture.closed_over import Slot, closed_over_tensors, entries, has_memory, name_of
from autosched.tracing.capture.result_tree import ResultTree, flattened
from search_spaces import InputError

# The content of an empty slot.
NOTHING = object()


class InPlaceError(Exception):
    """A function is about to change a tensor that it closes over in place, while it is captured."""


@dataclass(frozen=True)
class Write:
    """The destination of a result that is not returned: the tensor that the placeholder `node` of the graph stands for
    is changed to it in place; or, where that is None, it is bound to `place`.
    """

    node: str | None
    place: Slot | None


class Watched:
    """A context that undoes a function's bindings of other tensors within it; `bound` has them afterwards."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.bound: dict[Slot, Any] = {}
        self._function = function
        self._before: dict[Any, tuple[Slot, Any]] = {}
        self._by_function: set[Any] = set()

    def __enter__(self) -> Watched:
        self._before = self._entries()
        return self

    def __exit__(self, *_: object) -> None:
        found = [(p, v) for p, v in self._entries().values() if not isinstance(p.holder, tuple)]
        changed = {p: v for p, v in found if v is not self.before(p) and _has_tensor(v)}
        self.bound = {p: v for p, v in changed.items() if p.same in self._by_function}
        # Appended elements of a list are removed from its end.
        for place in reversed(changed):
            if self.before(place) is NOTHING:
                place.remove()
            else:
                place.bind(self.before(place))

    def during(self, called: Callable[..., Any], *arguments: Tensor) -> Any:
        """The function's return value. Only its own bindings count: a list that it refills with parameters it finds
        elsewhere, or with their stand-ins, is unchanged.
        """
        tensors = self._entries()
        try:
            return called(*arguments)
        finally:
            after = self._entries()
            then, now = _places_of_tensors(self._before), _places_of_tensors(tensors)
            changed = {n: (p, v) for n, (p, v) in after.items() if n not in tensors or v is not tensors[n][1]}
            kept = {id(v) for p, v in changed.values() if _is_as_it_was(self.before(p), v, then, now)}
            self._by_function |= {n for n, (p, v) in changed.items() if id(v) not in kept and id(p.holder) not in kept}

    def before(self, place: Slot) -> Any:
        """The earlier content of that slot; NOTHING where it was empty."""
        return self._before[place.same][1] if place.same in self._before else NOTHING

    def _entries(self) -> dict[Any, tuple[Slot, Any]]:
        return {place.same: (place, value) for place, value in entries(self._function)}


def _places_of_tensors(entries: Mapping[Any, tuple[Slot, Any]]) -> dict[int, set[Any]]:
    """The slots of each tensor, by its identity."""
    found: dict[int, set[Any]] = {}
    for place, (_, value) in entries.items():
        if isinstance(value, Tensor):
            found.setdefault(id(value), set()).add(place)
    return found


def _is_as_it_was(was: Any, made: Any, then: Mapping[int, set[Any]], now: Mapping[int, set[Any]]) -> bool:
    """True if the new tensors are in the same other slots as the old ones were."""
    if isinstance(was, Tensor) and isinstance(made, Tensor):
        return not then.get(id(was), set()).isdisjoint(now.get(id(made), ()))
    alike = isinstance(was, list | tuple) and isinstance(made, list | tuple) and len(was) == len(made)
    return alike and all(_is_as_it_was(a, b, then, now) for a, b in zip(was, made, strict=True))


class Guarded(TorchFunctionMode):
    """A context in which changes in place of a function's tensors raise InPlaceError."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._storages = {_storage(t) for _, t in closed_over_tensors(function) if has_memory(t)}

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        changed = [*args[:1]] if _is_in_place(func) else []
        if kwargs and "out" in kwargs:
            changed += pytree.tree_leaves(kwargs["out"])
        if any(isinstance(t, Tensor) and has_memory(t) and _storage(t) in self._storages for t in changed):
            raise InPlaceError
        return func(*args, **(kwargs or {}))


class Instead(TorchFunctionMode):
    """A context that substitutes tensors; `others` has the substitutes by identity of the originals."""

    def __init__(self, others: Mapping[int, Tensor]) -> None:
        super().__init__()
        self._others = others

    def of(self, nested: Any) -> Any:
        """A nested value with substitutes for the tensors in it."""
        return pytree.tree_map_only(Tensor, lambda t: self._others.get(id(t), t), nested)

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        return func(*self.of(tuple(args)), **self.of(dict(kwargs or {})))


class Unread:
    """A context that records the attributes a function reads before it binds them, in `read`."""

    def __init__(self, places: Iterable[Slot]) -> None:
        self.read: set[Any] = set()
        self._names: dict[int, tuple[Any, set[str]]] = {}
        for place in places:
            if _is_attribute(place):
                self._names.setdefault(id(place.holder), (place.holder, set()))[1].add(place.key)
            else:
                self.read.add(place.same)

    def __enter__(self) -> Unread:
        for holder, names in self._names.values():
            holder.__class__ = self._reporting(holder, type(holder), names)
        return self

    def __exit__(self, *_: object) -> None:
        for holder, _names in self._names.values():
            holder.__class__ = type(holder).__mro__[1]

    def _reporting(self, holder: Any, kind: Any, names: set[str]) -> type:
        """A subtype of an object's type that records reads of these attributes before they are set."""
        unset = set(names)

        def read(self_: Any, name: str) -> Any:
            if name in unset:
                self.read.add((id(holder), name))
            return kind.__getattribute__(self_, name)

        def write(self_: Any, name: str, value: Any) -> None:
            unset.discard(name)
            kind.__setattr__(self_, name, value)

        return type(kind.__name__, (kind,), {"__getattribute__": read, "__setattr__": write})


@dataclass
class Called:
    """The outcome of a call: the structure of its results, and the slots that as many last results are bound to."""

    structure: ResultTree | None = None
    bound: tuple[Slot, ...] = ()


class StatefulModule(torch.nn.Module):
    """A function as a module whose buffers are the tensors it closes over, so that torch.export follows its changes.

    A call returns the results, and after them the tensors that the function binds; `last` has their slots. `places`: by
    name of a buffer, its slot in the function.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        called: Callable[..., tuple[list[Any], ResultTree]],
        expected: Iterable[Slot],
    ) -> None:
        """`called`: calls the function, and returns its results and their structure; `expected`: the slots it binds."""
        super().__init__()
        self.last = Called()
        tensors = {id(tensor): (place, tensor) for place, tensor in reversed(list(closed_over_tensors(function)))}
        named = {f"held_{number}": found for number, found in enumerate(reversed(tensors.values()))}
        self.places = {name: place for name, (place, _) in named.items()}
        for name, (_, tensor) in named.items():
            self.register_buffer(name, tensor.detach())
        # As attributes, tensors or modules would be registered with this module.
        self._users = [(name, tensor) for name, (_, tensor) in named.items()]
        self._function, self._called, self._expected = [function], called, tuple(expected)

    def forward(self, *arguments: Tensor) -> Any:
        ours = {id(tensor): getattr(self, name) for name, tensor in self._users}
        unknown = {p.same: p for p in self._expected if not isinstance(p.found_or(None), Tensor)}
        (function,) = self._function
        with Watched(function) as watched, Unread(unknown.values()) as unread, Instead(ours) as instead:
            results, structure = watched.during(self._called, *arguments)
        # `self.seen += 1` binds the tensor it has changed in place.
        bound = {p: v for p, v in watched.bound.items() if v is not ours.get(id(watched.before(p)))}
        for place, value in bound.items():
            before = watched.before(place)
            known = isinstance(before, Tensor) or place.same in unknown
            _check_bound(place, value, before, not known or place.same in unread.read)
        self.last.structure, self.last.bound = structure, tuple(bound)
        return tuple(instead.of([*results, *bound.values()]))


def _is_attribute(place: Slot) -> bool:
    """True for an attribute in the dictionary of an object, or in none."""
    if isinstance(place.holder, dict | list | tuple | CellType):
        return False
    known = [getattr(place.holder, kind, {}) for kind in ("_parameters", "_buffers", "_modules")]
    return hasattr(place.holder, "__dict__") and not any(place.key in names for names in known)


def _check_bound(place: Slot, value: Any, before: Any, read: bool) -> None:
    """Raise InputError unless every call can bind a tensor there, and the next one finds the same kind of object."""
    if before is NOTHING and isinstance(place.holder, list):
        raise InputError(
            f"it appends {_described(value)}, {place.name}; expected a list of the same length after a call"
        )
    was = "nothing" if before is NOTHING else _described(before)
    now = f"it binds {place.name}, which was {was}, to {_described(value)}"
    if not isinstance(value, Tensor):
        raise InputError(f"{now}; expected a tensor")
    if isinstance(before, Tensor):
        if (before.shape, before.dtype) != (value.shape, value.dtype):
            raise InputError(f"{now}; expected the same shape and element type")
    elif read:
        raise InputError(f"{now}, and may look at it before; expected a tensor there before the first call")


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    return f"a {type(value).__name__} of tensors" if _has_tensor(value) else repr(value)


def sharing_memory(function: Callable[..., Any]) -> str:
    """The user's names of two closed-over tensors in the same memory; "" where there are none."""
    known: dict[int, tuple[Slot, Tensor]] = {}
    for place, tensor in closed_over_tensors(function):
        if has_memory(tensor) and tensor.numel():
            first, other = known.setdefault(_storage(tensor), (place, tensor))
            if other is not tensor:
                return f"{first.name} and {place.name}"
    return ""


def called_without_data(
    function: Callable[..., Any], inputs: Sequence[Tensor], mode: FakeTensorMode
) -> tuple[list[Any], ResultTree]:
    """The results of a function without data, and their structure; no closed-over tensor is changed.

    Raises:
        InputError: it changes something.
    """
    tensors = {id(t): (p.name, mode.from_tensor(t)) for p, t in closed_over_tensors(function) if has_memory(t)}
    before: dict[str, tuple[Tensor, int]] = {name: (t, t._version) for name, t in tensors.values()}
    before |= {f"argument {number}": (t, t._version) for number, t in enumerate(inputs)}
    with Watched(function) as watched, Instead({key: t for key, (_, t) in tensors.items()}):
        called = flattened(watched.during(function, *inputs))
    changed = [*(p.name for p in watched.bound), *(name for name, (t, was) in before.items() if t._version != was)]
    if changed:
        raise InputError(
            f"{name_of(function)} changes {', '.join(dict.fromkeys(changed))}, which kernels with gradients do not; "
            "expected a function that returns what it becomes, or one traced without backward=True"
        )
    return called


def check_data(function: Callable[..., Any]) -> None:
    """Raise InputError where a closed-over tensor is a fake one, made to record a graph."""
    for place, tensor in closed_over_tensors(function):
        if isinstance(tensor, FakeTensor):
            raise InputError(
                f"{place.name} has no data: it is a FakeTensor, with which something was recorded; expected a tensor "
                "with data in its place"
            )


def _has_tensor(value: Any) -> bool:
    return any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(value))


def _is_in_place(func: Any) -> bool:
    """True for a function that changes its first argument: `add_`, `__setitem__`, `__iadd__`, `add_.Tensor`."""
    name = str(getattr(func, "__name__", "")).partition(".")[0]
    return (
        name == "__setitem__"
        # Not `__invert__` or `__index__`: there is no `__nvert__`.
        or (name.startswith("__i") and hasattr(Tensor, f"__{name[3:]}"))
        or (name.endswith("_") and not name.endswith("__"))
    )


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
