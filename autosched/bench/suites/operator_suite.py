"""The reader of suites of named operators: matrix products, or layers of convolutions.

{"what": "…", "shapes": [{"name": "odd-1000", "m": 1000, "n": 1000, "k": 1000, "dtype": "bfloat16", "layout": "nt"}, …]}
[{"name": "first", "class": "3x3", "n": 32, "c": 64, "h": 56, "w": 56, "k": 64, "r": 3, "s": 3, "padding": [1, 1]}, …]

An entry's fields are the arguments of `ops.matmul` or of `ops.conv`, whatever these are, a name, and perhaps a class.
The list may stand alone. Of convolutions, d, h and w may be given for size, and t, r and s for kernel; their weights
are constants, as those of a layer are, unless an entry has "constant": "".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path

import torch
from torch import Tensor

from autosched.bench.suites.suite import CLASS, NOUNS, OperatorKind, Suite
from autosched.checking.random_inputs import random_inputs
from search_spaces import InputError, Workload, ops

# Other words for layouts and links of epilogues: PyTorch's documents have them, and those of cuDNN.
_LAYOUTS = {"nchw": "contiguous", "ncdhw": "contiguous", "nhwc": "channels_last", "ndhwc": "channels_last"}
_LINKS = {"add": "residual"}
_SIZES = {"size": ("d", "h", "w"), "kernel": ("t", "r", "s")}


@dataclass(frozen=True)
class OperatorCase:
    """One workload of a suite."""

    name: str
    op: Workload
    facts: tuple[tuple[str, str], ...]

    def inputs(self, seed: int, device: torch.device) -> list[Tensor]:
        return random_inputs(self.op, seed, device)


@dataclass(frozen=True)
class _Kind:
    """A kind of entries: the operator, the arguments with a column of their own, and an entry for error messages.

    `usual`: values of arguments that entries need not have, other than the operator's own.
    """

    operator: str
    columns: tuple[str, ...]
    example: str
    usual: Mapping[str, str] = field(default_factory=dict)
    arguments: Callable[[Mapping[str, object]], Mapping[str, object]] = dict


def _of_convolution(entry: Mapping[str, object]) -> Mapping[str, object]:
    """The arguments of `ops.conv` for an entry's fields: lists as 3x5, and other words for the same."""
    given = {key: _by(value) if isinstance(value, list) else value for key, value in entry.items()}
    for argument, fields in _SIZES.items():
        found = [given.pop(field) for field in fields if field in given and argument not in given]
        if found:
            given[argument] = _by(found)
    if "layout" in given:
        given["layout"] = _LAYOUTS.get(str(given["layout"]).lower(), given["layout"])
    if isinstance(given.get("epilogue"), str):
        given["epilogue"] = "_".join(_LINKS.get(link, link) for link in str(given["epilogue"]).split("_"))
    return given


_KINDS: Mapping[OperatorKind, _Kind] = {
    "gemm": _Kind("matmul", ("m", "n", "k", "dtype", "layout"), '{"name": …, "m": …, "n": …, "k": …}'),
    "conv": _Kind(
        "conv",
        ("n", "c", "size", "k", "kernel", "dtype", "layout"),
        '{"name": …, "n": …, "c": …, "h": …, "w": …, "k": …, "r": …, "s": …}',
        {"constant": "w"},
        _of_convolution,
    ),
}


def read_operator_suite(path: Path, kind: OperatorKind | None = None) -> Suite:
    """The operators of a suite file; without a kind, of that which has the first entry's fields.

    Of entries that have the same name, all but the first have a number behind it.

    Raises:
        InputError: the file cannot be read, is no suite, or an entry is not allowed; the message names it.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read the suite {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise InputError(f"{path} is no JSON: {error}") from None
    entries = data.get("shapes") if isinstance(data, dict) else data
    entries = entries if isinstance(entries, list) else []
    if kind is None:
        kind = "conv" if entries and isinstance(entries[0], dict) and "c" in entries[0] else "gemm"
    if not entries:
        raise InputError(f'{path}: expected {{"shapes": [{_KINDS[kind].example}, …]}}, or the list alone')
    cases = [_case(path, number, entry, kind) for number, entry in enumerate(entries, 1)]
    return Suite(path.stem, tuple(_numbered(_without_empty(cases))), kind)


def _case(path: Path, number: int, entry: object, kind: OperatorKind) -> OperatorCase:
    of, where = _KINDS[kind], f"{path}, {NOUNS[kind].removesuffix('s')} {number}"
    if not isinstance(entry, dict):
        raise InputError(f"{where}: got {entry!r}; expected {of.example}")
    described = {"name": entry.get("name", ""), CLASS: entry.get(CLASS) or ""}
    for key, value in described.items():
        if not isinstance(value, str) or (key == "name" and not value.strip()):
            raise InputError(f"{where}: {key}={entry.get(key)!r}; expected a text")
    try:
        stated = {key: value for key, value in entry.items() if key not in described and value is not None}
        given = {**of.usual, **{key: _text(key, value) for key, value in of.arguments(stated).items()}}
        op = ops.construct(of.operator, given)
        return OperatorCase(described["name"], op, ((CLASS, described[CLASS]), *_facts(op, of)))
    except InputError as error:
        raise InputError(f"{where} ({described['name']}): {error}") from None


def _without_empty(cases: Sequence[OperatorCase]) -> Iterable[OperatorCase]:
    """The cases without columns that are empty in all of them."""
    used = {heading for case in cases for heading, text in case.facts if text}
    return (replace(case, facts=tuple(fact for fact in case.facts if fact[0] in used)) for case in cases)


def _numbered(cases: Iterable[OperatorCase]) -> Iterator[OperatorCase]:
    """The cases under names of their own."""
    names: set[str] = set()
    for case in cases:
        numbers = (f"{case.name}-{number}" for number in count(2))
        name = next(name for name in chain([case.name], numbers) if name not in names)
        names.add(name)
        yield replace(case, name=name)


def _text(key: str, value: object) -> str:
    """A value as `ops.construct` takes it."""
    if not isinstance(value, bool | int | float | str):
        raise InputError(f"{key}={value!r}; expected a number, true or false, or a text")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _by(numbers: Iterable[object]) -> str:
    return "x".join(map(str, numbers))


def _facts(op: Workload, kind: _Kind) -> tuple[tuple[str, str], ...]:
    """Its columns; arguments without one that are not the usual ones, such as batch and epilogue, share the last."""
    given = dict(op.arguments)
    shown = {k: v for k, v in given.items() if k not in kind.columns and v is not False}
    rest = " ".join(f"{k}={v or 'none'}" for k, v in shown.items() if (v or "") != kind.usual.get(k, ""))
    return (*((column, str(given[column])) for column in kind.columns), ("and", rest))
