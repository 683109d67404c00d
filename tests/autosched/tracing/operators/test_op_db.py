"""PyTorch's samples of its operators: none that was supported is refused, and none comes out wrong or crashes."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from op_db import STORED, classified, op_db

# So many entries of each status and element type are tried: a few seconds in all.
_TRIED = {"supported": 6, "refused": 2}
# What an entry that was once so may have become.
_NO_WORSE = {"supported": ("supported",), "refused": ("supported", "refused")}


def chosen(names: list[str], count: int) -> list[str]:
    """The same entries in every run, from everywhere in the list."""
    order = torch.randperm(len(names), generator=torch.Generator().manual_seed(0)).tolist()
    return [names[n] for n in order[:count]]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
def test_samples_of_operators_come_out_no_worse_than_before(dtype: str) -> None:
    stored: dict[str, Any] = json.loads(STORED.read_text())[dtype]
    entries = {op.formatted_name: op for op in op_db()}
    worse = []
    for status, count in _TRIED.items():
        # An entry of another version of PyTorch may not be there.
        for name in chosen([n for n in stored[status] if n in entries], count):
            found = classified(entries[name], dtype, samples=1)
            if found.status not in _NO_WORSE[status]:
                worse.append(found)
    assert not worse


@pytest.mark.parametrize(("dtype", "least"), [("float32", 390), ("bfloat16", 370), ("int64", 300), ("bool", 225)])
def test_none_of_the_stored_samples_is_wrong_or_crashes(dtype: str, least: int) -> None:
    counts = json.loads(STORED.read_text())[dtype]["counts"]
    assert counts["wrong"] == counts["crashed"] == 0
    assert counts["supported"] >= least
