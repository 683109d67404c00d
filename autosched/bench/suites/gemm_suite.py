"""The reader of suites of matrix products.

{"what": "…", "shapes": [{"name": "odd-1000", "m": 1000, "n": 1000, "k": 1000, "dtype": "bfloat16", "layout": "nt"}, …]}

An entry's fields are the arguments of `ops.matmul`, whatever these are, and a name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from autosched.bench.suites.suite import Suite
from autosched.checking.random_inputs import random_inputs
from search_spaces import InputError, Workload, ops

# Arguments with a column of their own in tables of matrix products; others share one.
_GEMM_COLUMNS = ("m", "n", "k", "dtype", "layout")


@dataclass(frozen=True)
class GemmCase:
    """One workload of a suite."""

    name: str
    op: Workload
    facts: tuple[tuple[str, str], ...]

    def inputs(self, seed: int, device: torch.device) -> list[Tensor]:
        return random_inputs(self.op, seed, device)


def read_gemm_suite(path: Path) -> Suite:
    """The matrix products of a suite file.

    Raises:
        InputError: the file cannot be read, is no suite, or an entry is not allowed; the message names it.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read the suite {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise InputError(f"{path} is no JSON: {error}") from None
    entries = data.get("shapes") if isinstance(data, dict) else None
    if not isinstance(entries, list) or not entries:
        raise InputError(f'{path}: expected {{"shapes": [{{"name": …, "m": …, "n": …, "k": …}}, …]}}')
    cases = [_gemm_case(path, number, entry) for number, entry in enumerate(entries, 1)]
    names = [case.name for case in cases]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path}: {names.count(name)} shapes are named {name!r}; expected names of their own")
    return Suite(path.stem, tuple(cases) if any(c.facts[-1][1] for c in cases) else tuple(map(_without_rest, cases)))


def _gemm_case(path: Path, number: int, entry: object) -> GemmCase:
    if not isinstance(entry, dict):
        raise InputError(f'{path}, shape {number}: got {entry!r}; expected {{"name": …, "m": …, "n": …, "k": …}}')
    name = entry.get("name")
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"{path}, shape {number}: name={name!r}; expected a text")
    try:
        given = {key: _text(key, value) for key, value in entry.items() if key != "name" and value is not None}
        return GemmCase(name, ops.construct("matmul", given), _gemm_facts(given))
    except InputError as error:
        raise InputError(f"{path}, shape {number} ({name}): {error}") from None


def _without_rest(case: GemmCase) -> GemmCase:
    return GemmCase(case.name, case.op, case.facts[:-1])


def _text(key: str, value: object) -> str:
    """A value as `ops.construct` takes it."""
    if not isinstance(value, bool | int | float | str):
        raise InputError(f"{key}={value!r}; expected a number, true or false, or a text")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _gemm_facts(given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Its columns; arguments without one, such as batch and epilogue, share the last."""
    defaults = {"dtype": "float32", "layout": "nn"}
    rest = " ".join(f"{k}={v}" for k, v in given.items() if k not in _GEMM_COLUMNS)
    return (*((c, given.get(c, defaults.get(c, ""))) for c in _GEMM_COLUMNS), ("and", rest))
