"""Results, without data, of operators that PyTorch composes in Python of many calls, as it does recurrent nets.

torch.export makes every one of these calls to find the shapes of the results. Here calls on stand-ins are looked up.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.utils import _pytree as pytree

from autosched.tracing.capture.result_memory import storage_of
from autosched.tracing.capture.stand_ins import (
    FewCalls,
    Kinds,
    ManyCallsError,
    StandIn,
    empty_like,
    values_apart,
    with_stand_ins,
    with_values,
)
from search_spaces.workloads.strides import is_dense

# PyTorch has one table of rules for all threads. A rule may itself export a function.
_LOCK = threading.RLock()
_AUTOGRAD, _COMPOSITE = torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd


def composition_of(operator: Any) -> Callable[..., Any] | None:
    """The rule in Python that PyTorch composes the operator by, before gradients are taken; None where there is none.

    A rule may give NotImplemented.
    """
    rules: Mapping[Any, Callable[..., Any]] = getattr(operator, "py_kernels", {})
    return rules.get(_COMPOSITE) if _AUTOGRAD in rules else None


@contextlib.contextmanager
def results_looked_up() -> Iterator[None]:
    """A context in which these operators find their results without data by stand-ins, in one thread at a time."""
    with _LOCK:
        yield from _looked_up()


def _looked_up() -> Iterator[None]:
    before = {operator: rule for operator in decomposition_table if (rule := composition_of(operator)) is not None}
    try:
        for operator, rule in before.items():
            _compose(operator, functools.partial(_result, rule))
        yield
    finally:
        for operator, rule in before.items():
            _compose(operator, rule)


def _compose(operator: Any, rule: Callable[..., Any]) -> None:
    operator.py_kernels[_COMPOSITE] = rule
    operator._dispatch_cache.clear()


def _result(rule: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """The result of a rule on tensors without data; in tensors of its own where it makes many calls."""
    leaves = pytree.arg_tree_leaves(*arguments, **named)
    if get_proxy_mode() is None and any(isinstance(x, FakeTensor) for x in leaves):
        try:
            with FewCalls():
                return rule(*arguments, **named)
        except ManyCallsError:
            found = _by_stand_ins(rule, arguments, named)
            if found is not None:
                return found
    return rule(*arguments, **named)


def _by_stand_ins(rule: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """The result, if every tensor of it has memory of its own; else None."""
    lookup = _Lookup()

    def stand_in(tensor: Tensor) -> StandIn:
        # Constants are no fake tensors.
        value = tensor if isinstance(tensor, FakeTensor) else empty_like(tensor)
        return StandIn.of(value, storage_of(tensor), lookup)

    given = pytree.tree_map_only(Tensor, stand_in, (tuple(arguments), dict(named)))
    try:
        made = rule(*given[0], **given[1])
    except Exception:
        # A rule of PyTorch's may ask a tensor for anything, and fail in any way where a stand-in has not got it. It is
        # run on the tensors themselves then, and what it raises there is raised.
        return None
    results = [x for x in pytree.tree_leaves(made) if isinstance(x, Tensor)]
    memories = [r.origin for r in results if isinstance(r, StandIn) and is_dense(tuple(r.shape), r.value.stride())]
    before = [x.origin for x in pytree.tree_leaves(given) if isinstance(x, StandIn)]
    if len({*memories} - {*before}) < len(results):
        return None
    return pytree.tree_map_only(StandIn, lambda r: empty_like(r.value), made)


@dataclass
class _Lookup:
    """Calls with their results. The origin of a stand-in is its memory."""

    kinds: Kinds = field(default_factory=Kinds)
    known: dict[Hashable, tuple[Any, Mapping[int, int]]] = field(default_factory=dict)

    def made(self, function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        key, given = self.kinds.key(function, arguments, named)
        if key not in self.known:
            values = values_apart(given)
            read, by_name = with_values(given, (tuple(arguments), dict(named)), values)
            self.known[key] = function(*read, **by_name), {storage_of(v): place for place, v in enumerate(values)}
        results, memories = self.known[key]
        # Results that share new memory count as one.
        new = object()
        origins = {memory: given[place].origin for memory, place in memories.items()}
        return with_stand_ins(results, lambda t: StandIn.of(t, origins.get(storage_of(t), new), self))
