"""Cache of traced graphs: another process that compiles the same graph neither captures nor cuts it again.

An entry is a file next to the user's log, `traced/<key>`: a digest, and a traced function as bytes. Its key is made of
all that the result follows from: the graph's operators with their arguments, its inputs' shapes, strides, element types
and devices, the target, settings, and the versions of everything. Weights are inputs, and in no entry. What cannot be
read is a miss, and is made anew; the files may be deleted at any time. PyTorch's `save_cache_artifacts` has the entries
of its process, too.
"""

from __future__ import annotations

import hashlib
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx
from torch.compiler._cache import CacheArtifact, CacheArtifactFactory, CacheArtifactManager

from autosched.backends.environment import environment
from autosched.machine.entries import sealed, unsealed, write_entry
from autosched.machine.library_precision import LibraryPrecision
from autosched.torch_compile.graphs import Allowed, on_data, target_of, traced_or_why
from autosched.torch_compile.repeats import tensor_text
from autosched.torch_compile.reports import Kind
from autosched.torch_compile.segments import attribute
from autosched.tracing import TracedFunction
from autosched.tracing.callables.stored import as_bytes, from_bytes
from autosched.tracing.capture.capture import Static
from search_spaces import AutoschedError, Target
from search_spaces.code_hash import code_hash
from tuning_logs import user_log_path

# Operators whose meaning does not change within a version of PyTorch, or of autosched.
_KNOWN = ("aten", "prims", "autosched_functions")
# Larger entries have large constants; a graph of 40 operators takes 40 kB.
_MOST_BYTES = 8 << 20
# Entries that are kept; a large model has ten, and a new version reads none of the old ones.
_MOST_ENTRIES = 2000
_KEY_DIGITS = 32


def known_or_traced(
    graph: fx.GraphModule, inputs: Sequence[Any], kind: Kind, allowed: Allowed, static: Static
) -> TracedFunction | str:
    """As `traced_or_why`, from the cache if it is there; what depends on the elements of weights is not."""

    def traced() -> TracedFunction | str:
        return traced_or_why(graph, inputs, kind, allowed, static)

    if isinstance(static, tuple):
        return traced()
    try:
        target = target_of(inputs)
        with on_data():
            key = _key(graph, inputs, target, allowed, static)
    except Exception:
        # Tracing says what is wrong with it, if anything is.
        return traced()
    with on_data():
        known = _read(key, graph, traced, target)
    if known is not None:
        return known
    found = traced()
    if isinstance(found, TracedFunction):
        with on_data():
            _store(key, found, target)
    return found


class _NoKeyError(Exception):
    """A graph whose text does not tell all that it computes."""


@CacheArtifactFactory.register
class TracedArtifact(CacheArtifact):
    """An entry among the artifacts of PyTorch's caches."""

    def populate_cache(self) -> None:
        _write(self.key, self.content)

    @staticmethod
    def type() -> str:
        return "autosched_traced"


def _key(graph: fx.GraphModule, inputs: Sequence[Any], target: Target, allowed: Allowed, static: frozenset[int]) -> str:
    """Raises _NoKeyError where there is none."""
    libraries = LibraryPrecision.now(), torch._C._get_mkldnn_enabled(), torch._C._get_cudnn_enabled()
    settings = libraries, torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled(), allowed
    versions = sys.version_info, torch.__version__, environment(target), code_hash("search_spaces", "autosched")
    whole = [repr((target.key, settings, versions, sorted(static))), *map(tensor_text, inputs), *_lines(graph)]
    return hashlib.sha256("\n".join(whole).encode()).hexdigest()[:_KEY_DIGITS]


def _lines(graph: fx.GraphModule) -> Iterator[str]:
    """The nodes of a graph by their positions."""
    places = {node: f"%{n}" for n, node in enumerate(graph.graph.nodes)}
    for node in graph.graph.nodes:
        given = fx.node.map_arg((node.args, node.kwargs), lambda n: _Place(places[n]))
        match node.op:
            case "placeholder":
                yield "placeholder"
            case "output":
                yield f"output {given} {tensor_text([n.meta.get('val') for n in node.all_input_nodes])}"
            case "call_function" if _is_known(node.target):
                yield f"{node.target} {given}"
            case "get_attr" if isinstance(constant := attribute(graph, node), Tensor):
                yield f"constant {tensor_text(constant)} {_digest_of(constant)}"
            case _:
                raise _NoKeyError(str(node.target))


class _Place(str):
    """A node in the text of its reader's arguments; unlike a string, without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _is_known(target: Any) -> bool:
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace in _KNOWN
    return target in vars(operator).values()


def _digest_of(constant: Tensor) -> str:
    if constant.nbytes > _MOST_BYTES or constant.layout is not torch.strided:
        raise _NoKeyError("a large constant")
    elements = constant.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(elements.numpy().tobytes()).hexdigest()


def _read(
    key: str, graph: fx.GraphModule, traced: Callable[[], TracedFunction | str], target: Target
) -> TracedFunction | None:
    """The entry for a key; None where there is none that can be read."""

    def again(precision: LibraryPrecision, for_target: Target | None) -> TracedFunction:
        found = traced()
        if isinstance(found, str):
            raise AutoschedError(found)
        assert found.again is not None
        return found.again(precision, for_target)

    try:
        content = _path(key).read_bytes()
        body = unsealed(content)
        if body is None:
            return None
        found = from_bytes(body, graph, again).noted_for(target)
    except Exception:
        # There is no such file, or it is another's: whatever is wrong with it, the graph is traced.
        return None
    CacheArtifactManager.record_artifact(TracedArtifact.type(), key, content)
    return found


def _store(key: str, traced: TracedFunction, target: Target) -> None:
    try:
        body = as_bytes(traced.for_target(target))
    except Exception:
        # It has no cut for the target, or something in it has no bytes: it is traced again next time.
        return
    if len(body) <= _MOST_BYTES:
        content = sealed(body)
        _write(key, content)
        CacheArtifactManager.record_artifact(TracedArtifact.type(), key, content)


def _write(key: str, content: bytes) -> None:
    write_entry(_path(key), content, _MOST_ENTRIES)


def _path(key: str) -> Path:
    return user_log_path().with_name("traced") / Path(key).name
