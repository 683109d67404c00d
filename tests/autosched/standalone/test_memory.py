"""The memory of values in files of models: what is needed does not overlap, nor what views are of."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx

import autosched
from autosched.standalone.memory import FunctionMemory, ModelMemory, bytes_of
from autosched.tracing.values.fallbacks import Fallback
from autosched.tracing.values.values import InParts

SIZE = 64
W = [torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(n)) for n in range(4)]


V = torch.cat(W[:2])


def memory(function: Callable[..., Any], arguments: int = 1) -> FunctionMemory:
    inputs = [torch.randn(SIZE, SIZE) for _ in range(arguments)]
    return FunctionMemory(autosched.trace(function, *inputs, allow_fallback=True))


def chain(x: Tensor) -> Tensor:
    for weight in W:
        x = torch.softmax(F.layer_norm(x, (SIZE,)) @ weight, -1)
    return x


def in_parts(x: Tensor) -> Tensor:
    whole = torch.cat((x @ W[0], torch.relu(x @ W[1])), -1)
    return torch.softmax(torch.softmax(whole @ V, -1) @ W[2], -1)


def lifetimes(found: FunctionMemory) -> dict[Any, tuple[int, int]]:
    """The first and the last launch that writes or reads each value of its inner memory, parts as their wholes."""
    whole = {part: w for part, (w, _) in found.traced.in_place.items()}
    used: dict[Any, list[int]] = {}
    for number, step in enumerate(found.traced.steps):
        if step.assembled is not None:
            for value in (*step.values, *(view.value for view in step.assembled.inputs)):
                used.setdefault(whole.get(value, value), []).append(number)
    return {value: (min(at), max(at)) for value, at in used.items() if value in found.inner}


@pytest.mark.parametrize("function", [chain, in_parts])
def test_values_that_are_needed_at_the_same_time_do_not_overlap(function: Callable[..., Any]) -> None:
    found = memory(function)
    needed = lifetimes(found)
    assert needed.keys() == found.inner.keys()
    for (a, (first, last)), (b, (other_first, other_last)) in itertools.combinations(needed.items(), 2):
        begin, other = found.inner[a], found.inner[b]
        apart = begin + bytes_of(a) <= other or other + bytes_of(b) <= begin
        assert apart or last < other_first or other_last < first
    assert found.inner_bytes >= max(found.inner[v] + bytes_of(v) for v in found.inner)


def test_memory_is_used_again_after_the_last_reader() -> None:
    found = memory(chain)
    assert len(found.inner) > 3
    assert found.inner_bytes < sum(map(bytes_of, found.inner))


def test_the_whole_of_parts_has_one_place() -> None:
    found = memory(in_parts)
    assert any(isinstance(v, InParts) for v in found.inner)
    assert not any(part in found.inner for part in found.traced.in_place)


def test_what_operators_of_pytorch_read_has_memory_of_its_own() -> None:
    def function(x: Tensor) -> Tensor:
        first = torch.softmax(x, -1)
        return torch.softmax(torch.sort(first, -1)[0] + F.layer_norm(first, (SIZE,)) @ W[0], -1)

    found = memory(function)
    (read,) = {v for call in found.traced.made if isinstance(call, Fallback) for v in call.operands}
    assert read not in found.inner
    assert read not in found.results
    assert not any(isinstance(v, Fallback) for v in found.inner)


@dataclass(frozen=True)
class _Part:
    key: str
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]


def model_memory(text: str, kept: str, functions: dict[str, FunctionMemory]) -> ModelMemory:
    """That of parts such as `b = f(a); c = g(b)`, of which calls return the values of `kept`."""
    graph = fx.Graph()
    nodes = {name: graph.placeholder(name) for name in "abcdefgh"}
    parts = []
    for made, _, called in (line.partition("=") for line in text.replace(" ", "").split(";")):
        key, _, given = called.rstrip(")").partition("(")
        inputs, outputs = (tuple(map(nodes.__getitem__, names.split(","))) for names in (given, made))
        parts.append(_Part(key, inputs, outputs))
    return ModelMemory.of(parts, functions, {nodes[name] for name in kept})


VALUE = SIZE * SIZE * 4


@pytest.fixture(scope="module")
def functions() -> dict[str, FunctionMemory]:
    return {
        "f": memory(lambda x: torch.softmax(x, -1)),
        "inner": memory(chain),
        "same": memory(lambda x: (x.t(), torch.softmax(x, -1))),
        "both": memory(lambda x, y: torch.softmax(x + y, -1), 2),
        "sorts": memory(lambda x: torch.softmax(torch.sort(x, -1)[0], -1)),
    }


def test_results_between_parts_lie_apart_as_long_as_they_are_read(functions: dict[str, FunctionMemory]) -> None:
    found = model_memory("b=f(a); c=f(b); d=both(b,c); e=f(d)", "e", functions)
    (b,), (c,), (d,), (e,) = found.results
    assert e is None
    assert len({b, c, d}) == 3
    again = model_memory("b=f(a); c=f(b); d=f(c); e=f(d)", "e", functions)
    assert again.bytes == 2 * VALUE


def test_what_a_part_alone_needs_lies_apart_from_its_arguments_and_results(
    functions: dict[str, FunctionMemory],
) -> None:
    found = model_memory("b=f(a); c=inner(b); d=f(c)", "d", functions)
    inner = range(found.bases[1], found.bases[1] + functions["inner"].inner_bytes)
    for (begin,) in found.results[:2]:
        assert begin is not None
        assert begin >= inner.stop or begin + VALUE <= inner.start


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("b=f(a); c=f(b)", "bc"),
        ("b=f(a); c=left(b); d=f(c)", "d"),
        ("b=f(a); c=sorts(b); d=f(c)", "d"),
        ("b=f(a); c,d=same(b)", "cd"),
        ("b=f(a); c,d=same(b); e=left(c); g=f(d)", "eg"),
    ],
    ids=["returned", "read by PyTorch", "read by PyTorch in a part", "a view is returned", "PyTorch reads a view"],
)
def test_memory_that_outlives_its_readers_is_not_in_the_arena(
    text: str, kept: str, functions: dict[str, FunctionMemory]
) -> None:
    assert model_memory(text, kept, functions).results[0] == (None,)


def test_memory_lives_as_long_as_its_views(functions: dict[str, FunctionMemory]) -> None:
    found = model_memory("b=f(a); c,d=same(b); e=f(d); g=both(c,e); h=f(g)", "h", functions)
    ((b,), (d,), (e,), *_) = found.results
    assert None not in (b, d, e)
    assert b not in (d, e)
