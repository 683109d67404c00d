"""Triton's syntax for counting iterations and tiles: the `Words` of `printing.grid` and `printing.loops`."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.backends.triton.language.index import Indexing
from search_spaces.workloads.expressions.affine import Affine


@dataclass(frozen=True)
class Words:
    indexing: Indexing
    quotient: str = "//"

    def defined(self, identifier: str, value: str) -> str:
        return f"{identifier} = {value}"

    def variable(self, name: str) -> str:
        return self.indexing.variable(name)

    def affine(self, value: Affine) -> str:
        return self.indexing.affine(value)

    def least(self, a: str, b: str) -> str:
        return f"tl.minimum({a}, {b})"

    def most(self, a: str, b: str) -> str:
        return f"tl.maximum({a}, {b})"

    def rounded_up(self, text: str, divisor: int) -> str:
        return f"tl.cdiv({text}, {divisor})"
