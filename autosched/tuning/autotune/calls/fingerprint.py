"""The fingerprint of a kernel's source: of its code, and of the code and constants that it refers to.

Comments, blank lines, decorators, and the kernel's name and position do not count: an edit elsewhere in the file costs
no record, where Triton's own key of a kernel has its line in it. Functions of Triton's library do not count either.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from autosched.tuning.autotune.calls.jit_kernel import function_of, layers
from search_spaces import InputError

_DIGITS = 16


def source_fingerprint(kernel: object) -> str:
    """16 hexadecimal digits over the source that determines a Triton kernel's results.

    Raises:
        InputError: there is no function of Python behind it, or its source cannot be found.
    """
    texts = list(_texts(function_of(kernel), set()))
    for layer in layers(kernel):
        # Values that triton.heuristics adds to a kernel.
        heuristics = getattr(layer, "values", None) or {}
        texts += [f"heuristic {name}: {_code(function)}" for name, function in sorted(heuristics.items())]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:_DIGITS]


def _texts(function: FunctionType, met: set[FunctionType]) -> Iterator[str]:
    """The text of a function, and of all that it refers to, in the order of reference."""
    if function in met:
        return
    met.add(function)
    tree = _tree(function)
    yield ast.dump(tree)
    seen = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    for path, value in _references(tree, seen):
        if _is_tritons(value):
            continue
        if hasattr(value, "fn") and callable(value):
            yield from _texts(function_of(value), met)
        elif _is_constant(value) or not (isinstance(value, ModuleType) or callable(value)):
            # Constants: numbers, words, and those of the kernel's language.
            yield f"{path}={value!r}"


def _tree(function: FunctionType) -> ast.FunctionDef:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError) as error:
        raise InputError(f"{function.__qualname__}: its source cannot be read ({error})") from error
    if not isinstance(tree, ast.FunctionDef):
        raise InputError(f"{function.__qualname__}: expected a function that is defined by `def`")
    tree.decorator_list, tree.name = [], ""
    if ast.get_docstring(tree) is not None:
        tree.body = tree.body[1:]
    return tree


def _references(tree: ast.AST, seen: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Values that the names in a function refer to, attributes of modules included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in seen:
            yield node.id, seen[node.id]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            base = seen.get(node.value.id)
            if isinstance(base, ModuleType) and hasattr(base, node.attr):
                yield f"{node.value.id}.{node.attr}", getattr(base, node.attr)


def _is_tritons(value: object) -> bool:
    module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return isinstance(module, str) and module.partition(".")[0] == "triton" and not _is_constant(value)


def _is_constant(value: object) -> bool:
    """True for a `constexpr` of the kernel's language, which the user has given a value."""
    return type(value).__name__ == "constexpr"


def _code(function: Any) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return repr(function)
