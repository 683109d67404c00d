"""Modules in files of Python, as KernelBench has them, and the same with smaller sizes.

A file defines `Model`, `get_inputs` and `get_init_inputs`. Its sizes are the integers in its source. Equal integers get
equal sizes, so that channels that fit go on to fit; divisions by powers of 2 keep what divides what.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from rearranging import provide_einops

# Integers up to this one are ranks, kernels of convolutions, paddings and the like.
_NO_SIZE = 8
# What all sizes are divided by at first, the most first; and then each of them.
_DIVISORS = (64, 32, 16, 8, 4, 2, 1)
_FURTHER = (256, 64, 16, 8, 4, 2)
# Operations and elements of a module that is small enough: some tenths of a second for a kernel that was not tuned.
_SMALL = 2e7
# Sizes end here at the least: odd, and wider than most windows of convolutions.
_LEAST = 5


@dataclass(frozen=True)
class Module:
    """A module, and what it is called with: tensors and other arguments, in order."""

    module: torch.nn.Module
    arguments: tuple[Any, ...]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(a for a in self.arguments if isinstance(a, Tensor))

    def function(self) -> Callable[..., Any]:
        """The module as a function of its tensors."""

        def forward(*tensors: Tensor) -> Any:
            given = iter(tensors)
            return self.module(*(next(given) if isinstance(a, Tensor) else a for a in self.arguments))

        return forward


class _Unfilled(TorchFunctionMode):
    """Random tensors are memory that nobody has written: of any size, they take no time and no memory."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.rand, torch.randn):
            return torch.empty(*args, **{k: v for k, v in kwargs.items() if k in ("device", "dtype")})
        if func in (Tensor.uniform_, Tensor.normal_):
            return args[0]
        return func(*args, **kwargs)


def unfilled() -> contextlib.AbstractContextManager[Any]:
    """Modules made in it, and their inputs, have no values."""
    return _Unfilled()


def made(source: str, training: bool = False) -> Module:
    """The module of a file, without gradients."""
    provide_einops()
    space: dict[str, Any] = {}
    exec(compile(source, "module.py", "exec"), space)
    module = space["Model"](*space["get_init_inputs"]()).requires_grad_(False)
    return Module(module.train(training), tuple(space["get_inputs"]()))


def smaller(source: str) -> str:
    """The source with sizes that are computed with at once, as far as the module still runs with these.

    All sizes are divided by the largest power of 2 with which it runs, and then each as far as it goes.
    """
    sizes = sorted(_sizes(ast.parse(source)), reverse=True)
    mappings = [{n: _divided(n, divisor) for n in sizes} for divisor in _DIVISORS]
    for cost, mapping in itertools.product((_cost_on_meta, _cost), mappings):
        known = cost(_with_sizes(source, mapping))
        if known is not None:
            return _with_sizes(source, _each_smaller(source, mapping, known, cost))
    raise ValueError("the module runs neither with smaller sizes nor with its own")


def _each_smaller(
    source: str, mapping: dict[int, int], known: float, cost: Callable[[str], float | None]
) -> dict[int, int]:
    """The sizes, one after the other smaller where that costs less than is known, until it is little."""
    for size, divisor in itertools.product(mapping, _FURTHER):
        if known < _SMALL:
            break
        tried = {**mapping, size: _divided(size, divisor)}
        found = cost(_with_sizes(source, tried)) if tried[size] < mapping[size] else None
        if found is not None and found < known:
            mapping, known = tried, found
    return mapping


def _divided(size: int, divisor: int) -> int:
    return max(size // divisor, min(size, _LEAST))


def _is_size(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value > _NO_SIZE


def _sizes(tree: ast.AST) -> set[int]:
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and _is_size(node)}


def _with_sizes(source: str, mapping: Mapping[int, int]) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and _is_size(node):
            node.value = mapping[node.value]
    return ast.unparse(tree)


def _cost_on_meta(source: str) -> float | None:
    """Without computing anything; None also where the module needs to know values."""
    with torch.device("meta"):
        return _cost(source)


def _cost(source: str) -> float | None:
    """Operations and elements of one call; None if the module does not run."""
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as counted:
            given = made(source)
            results = given.function()(*given.tensors)
    except Exception:
        # Whatever it is: a size that does not go with the others.
        return None
    tensors = [*given.module.state_dict().values(), *given.tensors, *_tensors(results)]
    if any(0 in t.shape for t in _tensors(results)):
        return None
    return float(counted.get_total_flops() + sum(t.numel() for t in tensors))


def _tensors(made: Any) -> Iterator[Tensor]:
    return (x for x in torch.utils._pytree.tree_leaves(made) if isinstance(x, Tensor))
