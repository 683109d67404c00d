"""The nesting of a function's results, as Python text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch.utils._pytree import TreeSpec

from autosched.standalone.aten import value_text
from autosched.tracing.capture.result_tree import ResultTree
from search_spaces import InputError

_EXPECTED = "expected tuples, lists and dicts"


def structure_text(structure: ResultTree, results: Sequence[str]) -> str:
    """`{"a": x, "b": (y, None)}`, from the texts of all results that are tensors.

    Raises:
        InputError: they are returned in a type that a file that needs only PyTorch cannot write.
    """
    if structure.records:
        kinds = ", ".join(record.kind.__name__ for _, record in structure.records)
        raise InputError(
            f"results in {kinds} cannot be written to a stand-alone file; expected tuples, lists and dicts"
        )
    leaves = list(results)
    for place, constant in structure.constants:
        if not isinstance(constant, bool | int | float | str | None):
            raise InputError(f"a result {constant!r} cannot be written to a stand-alone file")
        leaves.insert(place, value_text(constant) if isinstance(constant, float) else repr(constant))
    return _text(structure.spec, iter(leaves))


def _text(spec: TreeSpec, leaves: Iterator[str]) -> str:
    if spec.is_leaf():
        return next(leaves)
    parts = [_text(child, leaves) for child in spec.children()]
    if spec.type is tuple:
        return f"({', '.join(parts)},)" if parts else "()"
    if spec.type is list:
        return f"[{', '.join(parts)}]"
    if spec.type is dict:
        return f"{{{', '.join(f'{key!r}: {part}' for key, part in zip(spec.context, parts, strict=True))}}}"
    raise InputError(f"results in a {spec.type.__name__} cannot be written to a stand-alone file; {_EXPECTED}")
