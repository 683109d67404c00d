"""Suites: named operators and functions that are tuned and measured in one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from autosched.tracing import TracedFunction
from search_spaces import Workload
from search_spaces.errors import unknown_name

# Kinds of cases, with their nouns in the plural.
OperatorKind = Literal["gemm", "conv"]
SuiteKind = OperatorKind | Literal["fused"]
NOUNS: Mapping[SuiteKind, str] = {"gemm": "shapes", "conv": "layers", "fused": "functions"}
# Heading of the column by which the means of a table are taken.
CLASS = "class"


class Case(Protocol):
    """One entry of a suite. `facts` are its columns in a table: a heading and a text each."""

    @property
    def name(self) -> str: ...

    @property
    def facts(self) -> tuple[tuple[str, str], ...]: ...

    @property
    def op(self) -> Workload | TracedFunction:
        """The operator or function to tune.

        Raises:
            InputError: the function cannot be traced.
        """
        ...

    def inputs(self, seed: int, device: torch.device) -> list[Tensor]:
        """Random inputs for timing."""
        ...


@dataclass(frozen=True)
class Suite:
    """The cases of one run. All have the same headings."""

    name: str
    cases: tuple[Case, ...]
    kind: SuiteKind = "gemm"

    def only(self, names: Sequence[str]) -> Suite:
        """The cases of these names, in the suite's order; all if no name is given.

        A part of a suite is named `…-part`, so that its table has a folder of its own.

        Raises:
            InputError: the suite has no case of that name.
        """
        known = [case.name for case in self.cases]
        for name in names:
            if name not in known:
                raise unknown_name(f"{NOUNS[self.kind].removesuffix('s')} of {self.name}", name, known)
        if not set(names) or set(names) == set(known):
            return self
        return Suite(f"{self.name}-part", tuple(c for c in self.cases if c.name in names), self.kind)
