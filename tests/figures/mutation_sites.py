"""Where a module can be changed by a little so that it does something else, and the text that it then has."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

Change = tuple[ast.expr | ast.stmt, str, str]  # the part that changes, its new text, what that is

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
}
_CALLED = {"any": "all", "all": "any", "min": "max", "max": "min"}


@dataclass(frozen=True)
class Mutation:
    """A part of a file, from one byte to another, and the text that is put there."""

    path: str
    line: int
    start: int
    end: int
    text: str
    what: str

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]


def mutations(root: Path, path: str) -> list[Mutation]:
    """All mutations of a module, in its order."""
    source = (root / path).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for part, text, what in _changes(ast.parse(source)):
        # What `ast.parse` gives has an end.
        assert part.end_lineno is not None
        assert part.end_col_offset is not None
        start = starts[part.lineno - 1] + part.col_offset
        end = starts[part.end_lineno - 1] + part.end_col_offset
        found.append(Mutation(path, part.lineno, start, end, text, what))
    return sorted(found, key=lambda m: (m.start, m.end, m.what))


def _changes(node: ast.AST) -> Iterator[Change]:
    yield from _own_changes(node)
    for child in _children(node):
        yield from _changes(child)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """The parts that do something: no messages, types, patterns or what a module asserts of itself."""
    match node:
        case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.pattern() | ast.Import() | ast.ImportFrom():
            return
        case ast.AnnAssign(value=value):
            yield from [value] if value else []
        case ast.FunctionDef(name="__init__"):
            # What is kept there would be missed at once.
            yield from (x for x in node.body if not isinstance(x, ast.Assign))
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from (d for d in (*node.args.defaults, *node.args.kw_defaults) if d)
            yield from node.body
        case ast.ClassDef():
            yield from node.body
        case ast.If(test=ast.Name("TYPE_CHECKING")):
            return
        case _:
            yield from ast.iter_child_nodes(node)


def _own_changes(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.stmt():
            yield from _of_statement(node)
        case ast.match_case(guard=ast.expr() as guard):
            yield guard, f"not ({_text(guard)})", "condition of a case negated"
        case ast.comprehension(ifs=conditions):
            yield from ((c, "True", f"all taken, also without {_text(c)}") for c in conditions)
        case ast.expr():
            yield from _of_expression(node)


def _of_statement(node: ast.stmt) -> Iterator[Change]:
    match node:
        case ast.If(test, body, []):
            guard = "guard deleted" if isinstance(body[-1], ast.Raise | ast.Return | ast.Continue) else "never done"
            yield test, "False", f"{guard}: {_text(test)}"
            yield test, f"not ({_text(test)})", f"negated: {_text(test)}"
        case ast.If(test):
            yield test, f"not ({_text(test)})", f"negated: {_text(test)}"
        case ast.Return(ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield node, "return None", f"None instead of {_text(value)}"
        case ast.Expr(ast.Call()) | ast.AugAssign() | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield node, "pass", f"deleted: {_text(node)}"
        case ast.Continue():
            yield node, "pass", "deleted: continue"


def _of_expression(node: ast.expr) -> Iterator[Change]:
    changed = None
    match node:
        case ast.IfExp(test):
            yield test, f"(not ({_text(test)}))", f"negated: {_text(test)}"
        case ast.UnaryOp(ast.Not(), operand):
            yield node, f"({_text(operand)})", f"not negated: {_text(operand)}"
        case ast.Compare(left, [operator], others):
            changed = ast.Compare(left, [_COMPARED[type(operator)]()], others)
        case ast.BoolOp(operator, values):
            changed = ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.BinOp(left, operator, right) if type(operator) in _COMPUTED and not any(map(_is_text, (left, right))):
            changed = ast.BinOp(left, _COMPUTED[type(operator)](), right)
        case ast.Call(ast.Name(name)) if name in _CALLED:
            yield node.func, _CALLED[name], f"{name} → {_CALLED[name]} in {_text(node)}"
        case ast.Call(function, [a, b, *others], keywords) if not _is_built_in(function) and not _starred((a, b)):
            changed = ast.Call(function, [b, a, *others], keywords)
        case ast.Constant(bool() as value):
            changed = ast.Constant(not value)
        case ast.Constant(int() as value):
            changed = ast.Constant(value + 1)
        case ast.Constant(float() as value):
            changed = ast.Constant(value * 2)
    if changed is not None:
        text = _text(changed)
        yield node, text if isinstance(changed, ast.Constant | ast.Call) else f"({text})", f"{_text(node)} → {text}"


def _text(node: ast.AST) -> str:
    return ast.unparse(node)


def _is_text(node: ast.expr) -> bool:
    """Whether it is written as text, which is only ever joined."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_built_in(function: ast.expr) -> bool:
    return isinstance(function, ast.Name) and hasattr(builtins, function.id)


def _starred(arguments: Sequence[ast.expr]) -> bool:
    return any(isinstance(a, ast.Starred) for a in arguments)
