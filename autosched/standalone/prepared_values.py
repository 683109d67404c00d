"""Prepared values (`tracing.values.values.Prepared`) as functions of their constants in the text of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autosched.standalone.aten import value_text
from autosched.tracing import TracedFunction
from autosched.tracing.fusion.regions import below
from autosched.tracing.values.values import Joined, Padded, Pointwise, Prepared, Product, Reduced, Value, View
from autosched.tracing.values.views import Expansion, Permutation, Reshape, Selection, Slicing
from search_spaces import InputError
from search_spaces.workloads.dtypes import is_integer
from search_spaces.workloads.expressions.expression import Access, Apply, Expression, Integer, Literal
from search_spaces.workloads.expressions.operators import ROUNDINGS

_FUNCTIONS: Mapping[str, str] = {
    **{name: f"torch.{name}" for name in ("add", "sub", "mul", "div", "neg", "exp", "log", "sqrt", "rsqrt", "maximum")},
    **{name: f"torch.{name}" for name in ("minimum", "abs", "tanh", "erf", "pow", "exp2", "log2")},
}
_FOLDS: Mapping[str, str] = {"sum": "sum", "max": "amax", "min": "amin"}


def function_of(value: Prepared, name: str) -> list[str]:
    """A function of that name which computes the value of its constants in float64.

    Raises:
        InputError: an operator on the way has no text.
    """
    places = {constant: f"c{n}" for n, constant in enumerate(value.constants)}
    lines = [f"def {name}({', '.join(places.values())}):"]
    lines += [f"    {places[c]} = {places[c]}.{'long' if is_integer(c.dtype) else 'double'}()" for c in value.constants]
    for number, made in enumerate(v for v in below([value.argument]) if v not in places):
        places[made] = f"v{number}"
        lines.append(f"    v{number} = {_text(made, places)}")
    return [*lines, f"    return {places[value.argument]}"]


def check_texts(traced: TracedFunction) -> None:
    """Raise InputError where a prepared value of a function has no text."""
    for value in traced.made:
        if isinstance(value, Prepared):
            function_of(value, "of")


def _text(value: Value, places: Mapping[Value, str]) -> str:
    match value:
        case Pointwise(arguments=arguments, expression=expression):
            made = _expression(expression, [places[a] for a in arguments])
            return f"torch.as_tensor({made}).expand({value.shape})"
        case Joined(parts=parts, dim=dim):
            return f"torch.cat([{', '.join(places[p] for p in parts)}], {dim})"
        case Reduced(operator=operator, argument=argument, dims=dims) if operator in _FOLDS:
            return f"{places[argument]}.{_FOLDS[operator]}({dims})"
        case Product(a=a, b=b):
            kept = [*range(len(value.shape))]
            return f"torch.einsum({places[a]}, {[*value.a_loops]}, {places[b]}, {[*value.b_loops]}, {kept})"
        case View(argument=argument):
            return f"{places[argument]}{_view(value)}"
        case Padded(argument=argument, before=before, fill=fill):
            sizes = zip(argument.shape, value.shape, before, strict=True)
            sides = [n for size, whole, b in [*sizes][::-1] for n in (b, whole - size - b)]
            return f"torch.nn.functional.pad({places[argument]}, {sides}, value={_expression(fill, [])})"
        case _:
            raise InputError(f"{value.name}: a {type(value).__name__} of weights cannot be exported")


def _view(value: View) -> str:
    match value.kind:
        case Permutation(order=order):
            return f".permute({order})"
        case Reshape(shape=shape):
            return f".reshape({shape})"
        case Expansion(shape=shape):
            return f".expand({shape})"
        case Selection(dim=dim, at=at):
            return f".select({dim}, {at})"
        case Slicing(dim=dim, start=start, step=step, count=count) if step > 0:
            return f".narrow({dim}, {start}, {(count - 1) * step + 1})[{':, ' * dim}::{step}]"
        case kind:
            raise InputError(f"{value.name}: {kind} of weights cannot be exported")


def _expression(expression: Expression, elements: Sequence[str]) -> str:
    match expression:
        case Access(number, ()):
            return elements[int(number)]
        case Literal(value) | Integer(value):
            return f"torch.tensor({value_text(value)}, dtype=torch.float64)"
        case Apply(operator, (argument,)) if operator in ROUNDINGS:
            return f"{_expression(argument, elements)}.to(torch.{ROUNDINGS[operator]}).double()"
        case Apply("to_float", (argument,)):
            return f"{_expression(argument, elements)}.double()"
        case Apply(operator, arguments) if operator in _FUNCTIONS:
            return f"{_FUNCTIONS[operator]}({', '.join(_expression(a, elements) for a in arguments)})"
        case _:
            raise InputError(f"{expression} of weights cannot be exported")
