"""Gradient-boosted trees: the only module that imports xgboost.

It is imported by the first use (`load_xgboost`): that takes seconds where scikit-learn is installed, which it then
imports too. A search does it before its first trial, while the processes that measure start.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import xgboost

Floats = NDArray[np.float32]

# One thread: two on a machine with other work made training 5 to 20 times slower.
_COMMON: Mapping[str, str | float] = {"tree_method": "hist", "nthread": 1}


def load_xgboost() -> None:
    """Import xgboost now, which the first training would do otherwise."""
    importlib.import_module("xgboost")


@dataclass(frozen=True)
class Trees:
    """Trained trees; `columns` are the features that they use."""

    booster: xgboost.Booster
    columns: NDArray[np.intp]

    def predict(self, rows: Floats, margin: Floats | None = None) -> NDArray[np.float64]:
        """The trees' sum for each row, shape (len(rows),), starting from `margin`."""
        seen = np.ascontiguousarray(rows[:, self.columns])
        return np.asarray(self.booster.inplace_predict(seen, base_margin=margin), dtype=np.float64)

    def to_json(self) -> dict[str, Any]:
        """The booster is in xgboost's own JSON, which later versions read."""
        return {"columns": self.columns.tolist(), "booster": json.loads(self.booster.save_raw("json"))}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Trees:
        """The inverse of `to_json`. Raises KeyError, TypeError, ValueError for anything else."""
        import xgboost

        booster = xgboost.Booster({"nthread": 1})
        # Its errors are ValueErrors.
        booster.load_model(bytearray(json.dumps(data["booster"]).encode()))
        return Trees(booster, np.array(data["columns"], dtype=np.intp))


def train(
    rows: Floats,
    labels: Floats,
    settings: Mapping[str, str | float],
    rounds: int,
    weights: Floats | None = None,
    margin: Floats | None = None,
) -> Trees:
    """`rounds` trees that predict `labels`, shape (len(rows),), from `rows`, with xgboost's `settings`."""
    import xgboost

    # Within one workload a third of the features never change; leaving them out saves that share of the time.
    columns = np.flatnonzero(np.ptp(rows, axis=0))
    if not len(columns):
        columns = np.arange(1)  # xgboost refuses rows without columns
    data = xgboost.DMatrix(rows[:, columns], label=labels, weight=weights, base_margin=margin, nthread=1)
    return Trees(xgboost.train({**_COMMON, **settings}, data, rounds), columns)
