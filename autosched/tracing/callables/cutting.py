"""Functions cut into kernels: captured, translated into values, these also rewritten, and partitioned."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torch import Tensor

from autosched.machine.garbage import without_collections
from autosched.machine.library_precision import LibraryPrecision
from autosched.tracing.callables.function import TracedFunction, Written
from autosched.tracing.callables.whole_weights import with_whole_weights
from autosched.tracing.capture.capture import DEFAULT_NUMERICS, Captured, Numerics, Static, Weights, capture
from autosched.tracing.capture.closed_over import name_of
from autosched.tracing.capture.graph_nodes import is_convolution
from autosched.tracing.capture.memory_format import channels_last
from autosched.tracing.capture.result_memory import ResultMemory
from autosched.tracing.capture.scans import LIBRARY
from autosched.tracing.fusion.partition import NoKernelError, Partition, partitions, why_too_large
from autosched.tracing.fusion.region_kernels import RegionKernels
from autosched.tracing.rewriting.instances import Fold, why_refused
from autosched.tracing.rewriting.rewritings import Rewrite, Rewriting, rewritings
from autosched.tracing.rewriting.rules import rules_for, slices_of_products, sums_into_products
from autosched.tracing.translation.result_values import result_values
from autosched.tracing.translation.translate import Translation, translate
from autosched.tracing.values.fallbacks import Fallback
from autosched.tracing.values.values import Leaf, Value
from search_spaces import InputError, Target

_CHANNELS_LAST = "memory format: channels last"
# A function of more is a model, whose cuts take seconds, and whose format torch.compile's backend decides.
_MOST_CONVOLUTIONS = 16
_FALLBACK = "trace(..., allow_fallback=True) leaves what has no kernel to PyTorch"


@dataclass(frozen=True)
class _Way:
    """Results, the rewrites that led to them, and those of these that combine constants."""

    results: Sequence[Value]
    rewrites: tuple[str, ...] = ()
    folds: tuple[Fold, ...] = ()

    def then(self, made: Rewriting, results: Sequence[Value]) -> _Way:
        """These results, of a rewriting of it."""
        needed = dict.fromkeys(r for rewrite in made.rewrites for r in rewrite.all)
        folds = (Fold(str(r), r.match) for r in needed if r.rule.exactness == "folded")
        texts = dict.fromkeys((*self.rewrites, *map(str, made.rewrites)))
        return _Way(results, tuple(texts), (*self.folds, *folds))


def trace_function(
    function: Callable[..., Any],
    inputs: Sequence[Tensor],
    allow_fallback: bool,
    names: Sequence[str] | None = None,
    static: Static = frozenset(),
    numerics: Numerics = DEFAULT_NUMERICS,
) -> TracedFunction:
    """The function cut into workloads; `names` of its arguments, by default those that it has; `static`: those whose
    elements mostly stay from call to call; `numerics`: as `trace`.

    Raises:
        InputError: as `trace`.
    """
    names = names or argument_names(function, len(inputs))
    weights = static if isinstance(static, tuple) else ()
    numbers = frozenset(n for each in weights for n in each) if isinstance(static, tuple) else static

    def made(scans: bool) -> TracedFunction:
        captured = replace(capture(function, inputs, scans), static=numbers, weights=weights, numerics=numerics)
        return cut(captured, function, name_of(function), names, allow_fallback)

    return _with_scans(made)


def trace_in_formats(
    function: Callable[..., Any], inputs: Sequence[Tensor], allow_fallback: bool, numerics: Numerics
) -> TracedFunction:
    """As `trace_function`, also with images channels last between convolutions, as further cuts."""
    names = argument_names(function, len(inputs))

    def made(scans: bool) -> TracedFunction:
        captured = replace(capture(function, inputs, scans), numerics=numerics)
        return _cut_in_formats(captured, function, name_of(function), names, allow_fallback)

    return _with_scans(made)


def _with_scans(made: Callable[[bool], TracedFunction]) -> TracedFunction:
    """The function made with scans as operators of their own, if kernels compute them; else without."""
    with without_collections():
        found = made(True)
        left = (f"{v.operation.target}" for v in found.made if isinstance(v, Fallback))
        # PyTorch decomposes scans that no kernel computes.
        return made(False) if any(LIBRARY in operator for operator in left) else found


def _cut_in_formats(
    captured: Captured,
    function: Callable[..., Any],
    name: str,
    arguments: Sequence[str],
    allow_fallback: bool,
    kernels: RegionKernels | None = None,
) -> TracedFunction:
    known = kernels or RegionKernels()
    found = cut(captured, function, name, arguments, allow_fallback, known)
    few = sum(map(is_convolution, captured.graph.nodes)) <= _MOST_CONVOLUTIONS
    moved = channels_last(captured.graph) if few else None
    different = {_launches(each): each for each in found.cuts}
    if moved is not None:
        # What it stores in other layouts may have no kernel.
        with contextlib.suppress(InputError):
            for each in cut(replace(captured, graph=moved), function, name, arguments, allow_fallback, known).cuts:
                rewrites = (_CHANNELS_LAST, *each.rewrites)
                different.setdefault(_launches(each), replace(each, other_cuts=(), rewrites=rewrites))

    def again(precision: LibraryPrecision, target: Target | None) -> TracedFunction:
        changed = replace(captured, precision=precision)
        return _cut_in_formats(changed, function, name, arguments, allow_fallback, known.on(target))

    first, *others = different.values()
    return replace(first, other_cuts=tuple(others), again=again)


def cut(
    captured: Captured,
    function: Callable[..., Any],
    name: str,
    arguments: Sequence[str],
    allow_fallback: bool,
    kernels: RegionKernels | None = None,
) -> TracedFunction:
    """A captured graph cut into kernels, for the target of `kernels`, which are known already; by default for any.

    Raises:
        InputError: as `trace`.
    """
    eager: frozenset[str] = frozenset()
    by_kernels, in_normal_form = True, captured.is_gradient
    known = kernels or RegionKernels()
    while True:
        translation = translate(captured, arguments, allow_fallback, eager)
        refusals = _Refusals(captured.weights)
        # A gradient that is None is no result.
        returned = [r for r in translation.outputs if isinstance(r, Value)]
        laid_out = partial(_laid_out, captured.memory, by_kernels, len(returned))
        values: Sequence[Value] = [*returned, *translation.effects]
        if in_normal_form:
            values = _normal_form(values, refusals)
        wanted = laid_out(values)
        try:
            found = partitions(name, wanted, known)
        except NoKernelError as error:
            origin = translation.origins.get(error.value)
            if origin is None and in_normal_form:
                # What rules make may have no kernel.
                in_normal_form = False
                continue
            if origin is None and by_kernels:
                # A result that PyTorch must copy: no kernel makes it.
                by_kernels = False
                continue
            if origin is None or not allow_fallback:
                line = f" ({error.value.line})" if error.value.line else ""
                way_out = "" if allow_fallback else f"; {_FALLBACK}"
                why = why_too_large(error.value) or str(error)
                raise InputError(f"{name}: no kernel computes {error.value.name}{line}: {why}{way_out}") from None
            assert origin not in eager
            eager |= {origin}
            continue
        made = rewritings(values, rules_for(captured.numerics), refusals.why_refused)
        written = _Way(wanted)
        ways = _with_parts_alone([written, *(written.then(a, laid_out(a.results)) for a in made)])
        cuts = [*(_Cut(p, written) for p in found), *_other_cuts(name, ways[1:], known, refusals)]
        refused = tuple(refusals.texts)
        first, *others = (f for each in cuts for f in _functions(each, captured, function, name, translation, refused))
        different: dict[tuple[str, ...], TracedFunction] = {_launches(first): first}
        for other in sorted(others, key=lambda cut: len(cut.rewrites)):
            # Of equal ones that with the fewest rewrites: what was written before what was rewritten.
            different.setdefault(_launches(other), other)

        def again(precision: LibraryPrecision, target: Target | None) -> TracedFunction:
            changed = replace(captured, precision=precision)
            return cut(changed, function, name, arguments, allow_fallback, known.on(target))

        return replace(first, other_cuts=tuple(different.values())[1:], again=again)


def _launches(cut: TracedFunction) -> tuple[str, ...]:
    """The keys of its launches, in any order."""
    return tuple(sorted(w.key for w in cut.launched))


def _normal_form(values: Sequence[Value], refusals: _Refusals) -> Sequence[Value]:
    """The results of a gradient, whose sums over products always are products: those of keys and values, which several
    heads share.
    """
    made = rewritings(values, (sums_into_products.RULE,), refusals.why_refused)
    return made[0].results if made else values


def _other_cuts(name: str, ways: Sequence[_Way], kernels: RegionKernels, refusals: _Refusals) -> Iterator[_Cut]:
    """The partitions of results computed in other ways."""
    for way in ways:
        try:
            yield from [_Cut(p, way) for p in partitions(name, way.results, kernels)]
        except NoKernelError as error:
            # What rules make may have no kernel.
            refusals.add("; ".join(way.rewrites), f"no kernel computes {error.value.line or error.value.name}: {error}")


def _functions(
    cut: _Cut,
    captured: Captured,
    function: Callable[..., Any],
    name: str,
    translation: Translation,
    refused: tuple[str, ...],
) -> Iterator[TracedFunction]:
    """The function in each way of a partition."""
    end = len(captured.memory.results)
    count = end - len(captured.writes)
    for steps in cut.partition.ways:
        yield TracedFunction(
            name=name,
            function=function,
            leaves=tuple(translation.leaves),
            steps=with_whole_weights(steps, cut.way.results),
            results=tuple(cut.way.results[:count]),
            stored=tuple(cut.partition.stored_as(r) for r in cut.way.results[:count]),
            structure=captured.structure,
            captured=captured.digest,
            written=_written(captured, translation.leaf_of, cut.way.results[count:end]),
            places={translation.leaf_of[node]: place for node, place in captured.places.items()},
            settings=captured.settings,
            by_library=captured.precision,
            on_trust=frozenset(leaf.name for leaf in translation.on_trust),
            bounds={leaf.name: bounds for leaf, bounds in translation.bounds.items()},
            rewrites=cut.way.rewrites,
            folds=cut.way.folds,
            refused=refused,
        )


def _with_parts_alone(ways: Sequence[_Way]) -> list[_Way]:
    """Results computed in several ways, and in these with no more of them than the parts that are returned."""
    parts = [
        way.then(a, a.results)
        for way in ways
        for a in rewritings(way.results, (slices_of_products.RULE,), laid_out=True)
    ]
    return [ways[0], *parts, *ways[1:]]


@dataclass(frozen=True)
class _Cut:
    """A partition of results that are computed in some way."""

    partition: Partition
    way: _Way


@dataclass(frozen=True)
class _Refusals:
    """Rewrites that are not exact enough, or not known to be, for the constants of a function, as `texts`."""

    weights: tuple[Weights, ...]
    texts: dict[str, None] = field(default_factory=dict)

    def why_refused(self, rewrite: Rewrite) -> str | None:
        """The first reason among those of all models that the function is traced for."""
        if rewrite.rule.exactness == "same":
            return None
        instances = (partial(_tensor_of, weights) for weights in self.weights or ({},))
        why = next(filter(None, (why_refused(rewrite.rule, rewrite.match, of) for of in instances)), None)
        if why is not None:
            self.add(str(rewrite), why)
        return why

    def add(self, rewrites: str, why: str) -> None:
        self.texts[f"refused: {rewrites}: {why}"] = None


def _tensor_of(weights: Weights, leaf: Leaf) -> Tensor | None:
    known = None if leaf.position is None else weights.get(leaf.position)
    return leaf.tensor if known is None else known()


def _laid_out(memory: ResultMemory, by_kernels: bool, returned: int, values: Sequence[Value]) -> list[Value]:
    """The results of a function whose graph returns the first of these values, and its effects, which are the others.

    Their memory is decided after all algebra: equal elements may have to lie in memory of their own.
    """
    return [*result_values(values[:returned], memory, by_kernels), *values[returned:]]


def _written(captured: Captured, leaves: Mapping[str, Leaf], values: Sequence[Value]) -> tuple[Written, ...]:
    writes = zip(captured.writes, values, strict=True)
    return tuple(Written(v, None if w.node is None else leaves[w.node], w.place) for w, v in writes)


def argument_names(function: Callable[..., Any], count: int) -> Sequence[str]:
    """The function's names of its first arguments, or x0, x1 … where it has none."""
    target = getattr(function, "forward", function)
    try:
        named = [p.name for p in inspect.signature(target).parameters.values() if p.kind is not p.VAR_POSITIONAL]
    except (TypeError, ValueError):
        named = []
    return [*named[:count], *(f"x{i}" for i in range(len(named), count))]
