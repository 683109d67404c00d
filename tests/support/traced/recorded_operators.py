"""Calls of ATen operators that PyTorch's own samples make, as graphs of one node."""

from __future__ import annotations

import contextlib
import itertools
import operator
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from autosched.tracing.capture.capture import Captured
from autosched.tracing.capture.result_memory import ResultMemory
from autosched.tracing.capture.result_tree import flattened
from autosched.tracing.operators.pointwise.translation import NAMES
from autosched.tracing.translation.translate import rule_of
from op_db import op_db

Call = tuple[torch._ops.OpOverload, Sequence[Any], dict[str, Any]]


class _Recorded(TorchDispatchMode):
    """A context that notes the calls of operators for which there are rules."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # What is changed in place later is of no use any more.
        self.calls.append((func, *pytree.tree_map_only(Tensor, torch.detach, (args, dict(kwargs or {})))))
        return func(*args, **(kwargs or {}))


def recorded_calls(dtype: torch.dtype, samples: int, operators: int) -> Iterator[Call]:
    """What the first samples of so many operators, always the same ones, call, each once for each kind of arguments."""
    known: set[Any] = set()
    entries = [op for op in op_db() if dtype in op.supported_dtypes("cpu")]
    order = torch.randperm(len(entries), generator=torch.Generator().manual_seed(0)).tolist()
    for op in (entries[n] for n in order[:operators]):
        for func, args, kwargs in _calls_of(op, dtype, samples):
            key = (func, *_kinds((args, kwargs)))
            if key not in known and _has_rule(func):
                known.add(key)
                yield func, args, kwargs


def _calls_of(op: Any, dtype: torch.dtype, samples: int) -> list[Call]:
    torch.manual_seed(0)
    recorded = _Recorded()
    # Eager refuses some samples.
    with warnings.catch_warnings(), torch.no_grad(), contextlib.suppress(Exception):
        warnings.simplefilter("ignore")
        for sample in itertools.islice(op.sample_inputs("cpu", dtype), samples):
            with recorded:
                op.op(sample.input, *sample.args, **sample.kwargs)
    return recorded.calls


def _kinds(nested: Any) -> tuple[Any, ...]:
    leaves, structure = pytree.tree_flatten(nested)
    return str(structure), *((a.dtype, a.ndim) if isinstance(a, Tensor) else type(a) for a in leaves)


def _has_rule(func: Any) -> bool:
    if not isinstance(func, torch._ops.OpOverload) or func._schema.is_mutable or func.namespace != "aten":
        return False
    name = func._schema.name.removeprefix("aten::")
    return name in NAMES or rule_of(name, func._overloadname) is not None


def captured_call(call: Call, device: str) -> tuple[Captured, list[str]]:
    """The call alone, of tensors on this device, which need not be there; and the names of the tensors."""
    func, args, kwargs = call
    graph = fx.Graph()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:

        def placeholder(given: Tensor) -> fx.Node:
            node = graph.placeholder(f"x{len(graph.nodes)}")
            node.meta["val"] = torch.empty_strided(given.shape, given.stride(), dtype=given.dtype, device=device)
            return node

        given, named = pytree.tree_map_only(Tensor, placeholder, (args, kwargs))
        named = {k: torch.device(device) if k == "device" else v for k, v in named.items()}
        names = [n.name for n in graph.nodes]
        node = graph.call_function(func, tuple(given), named)
        fakes = fx.map_arg((tuple(given), named), lambda n: n.meta["val"])
        node.meta["val"] = func(*fakes[0], **fakes[1])
        assert mode is not None
    several = isinstance(node.meta["val"], list | tuple)
    results = (
        [graph.call_function(operator.getitem, (node, n)) for n in range(len(node.meta["val"]))] if several else [node]
    )
    for n, result in enumerate(results):
        result.meta["val"] = node.meta["val"][n] if several else node.meta["val"]
    graph.output(tuple(results))
    _, structure = flattened(tuple(torch.empty(()) for _ in results))
    memory = ResultMemory.as_returned([None] * len(results), 0)
    return Captured(graph, {}, structure, frozenset(), memory), names
