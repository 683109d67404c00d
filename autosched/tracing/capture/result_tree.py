"""The structure of a function's results: bare, or within tuples, dicts, dataclasses and other pytrees of PyTorch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import SUPPORTED_NODES, TreeSpec, tree_flatten, tree_unflatten

# Types of results while a function is captured: a tensor, or a number that depends on data.
_RESULTS = (Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass(frozen=True)
class ResultTree:
    """The containers of a function's results. `constants`: returned values that are no tensors, by position among all;
    `records`: instances of dataclasses that PyTorch's pytrees do not know, likewise.
    """

    spec: TreeSpec
    constants: tuple[tuple[int, Any], ...] = ()
    records: tuple[tuple[int, Record], ...] = ()

    @property
    def is_bare(self) -> bool:
        """True if the function returns one tensor and nothing around it."""
        return self.spec.is_leaf() and self._is_plain

    @property
    def is_tuple(self) -> bool:
        """True if it returns a tuple of nothing but tensors."""
        return self.spec.type is tuple and self._is_plain and all(c.is_leaf() for c in self.spec.children())

    @property
    def _is_plain(self) -> bool:
        return not self.constants and not self.records

    def of(self, results: Sequence[Any]) -> Any:
        """The results in the function's own structure."""
        return results[0] if self.is_bare else self._of(iter(results))

    def _of(self, results: Iterator[Any]) -> Any:
        constants, records = dict(self.constants), dict(self.records)
        leaves = []
        for place in range(self.spec.num_leaves):
            if place in records:
                leaves.append(records[place].of(results))
            else:
                leaves.append(constants[place] if place in constants else next(results))
        return tree_unflatten(leaves, self.spec)


@dataclass(frozen=True)
class Record:
    """An instance of a dataclass: its type, and the structure of its fields, a dict."""

    kind: type
    fields: ResultTree

    def of(self, results: Iterator[Any]) -> Any:
        """Another instance, with the next results. Effects of the class's constructor happened at capture."""
        made: Any = object.__new__(self.kind)
        fields: Mapping[str, Any] = self.fields._of(results)
        for name, value in fields.items():
            object.__setattr__(made, name, value)
        return made


def flattened(returned: Any) -> tuple[list[Any], ResultTree]:
    """The tensors within a function's return value, and their structure."""
    leaves, spec = tree_flatten(returned, is_leaf=_is_record)
    results, constants, records = list[Any](), [], []
    for place, leaf in enumerate(leaves):
        if _is_record(leaf):
            within, fields = flattened({f.name: getattr(leaf, f.name) for f in dataclasses.fields(leaf)})
            records.append((place, Record(type(leaf), fields)))
            results += within
        elif isinstance(leaf, _RESULTS):
            results.append(leaf)
        else:
            constants.append((place, leaf))
    return results, ResultTree(spec, tuple(constants), tuple(records))


def _is_record(returned: Any) -> bool:
    kind = type(returned)
    return dataclasses.is_dataclass(kind) and kind not in SUPPORTED_NODES
