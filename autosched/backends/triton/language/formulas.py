"""Formulas as functions of a Triton module."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

from autosched.backends.formulas.terms import Term, argument

_NAMES = "xyz"
_BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "shl": "<<", "shr": ">>"}
_COMPARED = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}
# A term that is used once is printed where it is used, up to about this length of the line.
_LONGEST = 90


def function(name: str, formula: Callable[..., Term], arity: int) -> str:
    """A `@triton.jit` function that computes the formula of float32 numbers, tensors or not."""
    return _Function(formula(*(argument(i) for i in range(arity)))).text(name, arity)


class _Function:
    def __init__(self, term: Term) -> None:
        self._term = term
        self._uses: Counter[int] = Counter()
        self._count(term)
        self._known: dict[int, str] = {}
        self._lines: list[str] = []

    def text(self, name: str, arity: int) -> str:
        names = _NAMES[:arity]
        result = self._bare(self._printed(self._term))
        # A number that is no tensor becomes one.
        given = [f"    {x} = tl.cast({x}, tl.float32)" for x in names]
        lines = [f"    {line}" for line in self._lines]
        head = ["@triton.jit", f"def {name}({', '.join(names)}):"]
        return "\n".join([*head, *given, *lines, f"    return {result}"]) + "\n"

    def _count(self, term: Term) -> None:
        self._uses[id(term)] += 1
        if self._uses[id(term)] == 1:
            for a in term.arguments:
                self._count(a)

    def _printed(self, term: Term) -> str:
        if term.operation == "argument":
            return _NAMES[int(term.number)]
        if term.operation == "constant":
            return _number(term)
        if id(term) in self._known:
            return self._known[id(term)]
        text = self._made(term, [self._printed(a) for a in term.arguments])
        if self._uses[id(term)] > 1 or len(text) > _LONGEST:
            name = f"t{len(self._lines)}"
            self._lines.append(f"{name} = {self._bare(text)}")
            text = name
        self._known[id(term)] = text
        return text

    def _made(self, term: Term, x: list[str]) -> str:
        match term.operation:
            case "choose":
                chosen = f"tl.where({', '.join(map(self._bare, x))})"
                numbers = all(a.operation == "constant" for a in term.arguments[1:])
                return f"{chosen}.to(tl.{term.kind})" if numbers else chosen
            case "bitcast":
                return f"{x[0]}.to(tl.{term.kind}, bitcast=True)"
            case "convert":
                return f"{x[0]}.to(tl.{term.kind})"
            case "neg":
                return f"(-{x[0]})"
            case "abs" | "sqrt" | "floor" as operation:
                return f"tl.{operation}({self._bare(x[0])})"
            case "fused":
                return f"({x[0]} * {x[1]} + {x[2]})"
            case operation:
                return f"({x[0]} {(_BINARY | _COMPARED)[operation]} {x[1]})"

    @staticmethod
    def _bare(text: str) -> str:
        """Without the parentheses that every operation has."""
        if not text.startswith("("):
            return text
        depth = 0
        for place, character in enumerate(text):
            depth += (character == "(") - (character == ")")
            if depth == 0:
                return text[1:-1] if place == len(text) - 1 else text
        return text


def _number(term: Term) -> str:
    if term.kind.startswith("int"):
        return str(int(term.number))
    if math.isnan(term.number) or math.isinf(term.number):
        text = f'float("{abs(term.number)}")'
        return f"(-{text})" if term.number < 0 else text
    return repr(float(term.number)) if term.number >= 0 else f"({float(term.number)!r})"
