"""Formulas as functions of a Triton module."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from autosched.backends.formulas.terms import Term, argument
from autosched.backends.formulas.text import COMPARISONS, NAMES, bare, printed

_BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "shl": "<<", "shr": ">>"}


def function(name: str, formula: Callable[..., Term], arity: int) -> str:
    """A `@triton.jit` function that computes the formula of float32 numbers, tensors or not."""
    names = NAMES[:arity]
    lines, result = printed(formula(*(argument(i) for i in range(arity))), _Triton())
    # A number that is no tensor becomes one.
    given = [f"{x} = tl.cast({x}, tl.float32)" for x in names]
    head = ["@triton.jit", f"def {name}({', '.join(names)}):"]
    return "\n".join([*head, *(f"    {line}" for line in (*given, *lines, f"return {bare(result)}"))]) + "\n"


class _Triton:
    def definition(self, name: str, term: Term, text: str) -> str:
        return f"{name} = {bare(text)}"

    def made(self, term: Term, x: Sequence[str]) -> str:
        match term.operation:
            case "choose":
                chosen = f"tl.where({', '.join(map(bare, x))})"
                numbers = all(a.operation == "constant" for a in term.arguments[1:])
                return f"{chosen}.to(tl.{term.kind})" if numbers else chosen
            case "bitcast":
                return f"{x[0]}.to(tl.{term.kind}, bitcast=True)"
            case "convert":
                return f"{x[0]}.to(tl.{term.kind})"
            case "neg":
                return f"(-{x[0]})"
            case "abs" | "sqrt" | "floor" as operation:
                return f"tl.{operation}({bare(x[0])})"
            case "fused":
                return f"({x[0]} * {x[1]} + {x[2]})"
            case operation:
                return f"({x[0]} {(_BINARY | COMPARISONS)[operation]} {x[1]})"

    def number(self, term: Term) -> str:
        if term.kind.startswith("int"):
            return str(int(term.number))
        if math.isnan(term.number) or math.isinf(term.number):
            text = f'float("{abs(term.number)}")'
            return f"(-{text})" if term.number < 0 else text
        return repr(float(term.number)) if term.number >= 0 else f"({float(term.number)!r})"
