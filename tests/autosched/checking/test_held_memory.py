"""Memory that the data of trials takes: a table of weights is there once, and once more between guard bands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from autosched.checking import random_inputs as drawing
from autosched.checking.random_inputs import random_inputs
from autosched.checking.reference import evaluate
from autosched.checking.rounding.analysis import rounding_error
from autosched.checking.trial_data import TrialData
from autosched.measuring.local.kernel_check import KernelCheck
from search_spaces import Workload, ops

CPU = torch.device("cpu")
# A table of 16 matrices, 65536 elements, for 8 rows.
OP = ops.grouped_matmul(16, 8, 64, 64, "bfloat16")
TABLE = 1


class LargestTensors(TorchDispatchMode):
    """Elements of the largest tensor in memory of its own that an operator makes, by element type."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: Counter[torch.dtype] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor):
            count = made.untyped_storage().nbytes() // made.element_size()
            self.elements[made.dtype] = max(self.elements[made.dtype], count)
        return made


@pytest.mark.parametrize("computed", [evaluate, rounding_error])
def test_references_convert_the_rows_of_a_table_that_are_looked_up(
    computed: Callable[[Workload, Sequence[torch.Tensor]], object],
) -> None:
    inputs = random_inputs(OP, 0)
    with LargestTensors() as largest:
        computed(OP, inputs)
    # A matrix for each row.
    assert largest.elements[torch.float64] == 8 * 64 * 64


def test_narrow_inputs_are_drawn_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = random_inputs(OP, 0)[TABLE]
    monkeypatch.setattr(drawing, "_AT_ONCE", 1000)
    with LargestTensors() as largest:
        drawn = random_inputs(OP, 0)[TABLE]
    assert (largest.elements[torch.float32], drawn.dtype) == (1000, torch.bfloat16)
    # Of the same distribution: a mean of so many numbers is off by 0.004.
    assert abs(float(drawn.float().mean())) < 0.03
    assert abs(float(drawn.float().std()) - float(whole.float().std())) < 0.03


def test_divisions_share_all_inputs_but_the_ends() -> None:
    with LargestTensors() as largest:
        data = TrialData.drawn(OP, 0, CPU)
    assert len(data.divisions) == 4
    assert all(d.ends.keys() == {2} for d in data.divisions)
    tables = {data.inputs.originals[TABLE].data_ptr(), data.inputs.tensors[TABLE].data_ptr()}
    for division in data.divisions:
        data.divide(division)
        assert {data.inputs.originals[TABLE].data_ptr(), data.inputs.tensors[TABLE].data_ptr()} == tables
    assert largest.elements[torch.float64] == 8 * 64 * 64


@pytest.mark.parametrize(("error", "kept"), [(torch.OutOfMemoryError("no"), True), (RuntimeError("broken"), False)])
def test_data_that_does_not_fit_twice_stays_where_it_is(
    error: RuntimeError, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = KernelCheck(OP, CPU)
    check.prepare(0)
    data = check.data

    def moved(self: TrialData, seed: int) -> TrialData:
        raise error

    monkeypatch.setattr(TrialData, "moved", moved)
    if not kept:
        with pytest.raises(RuntimeError, match="broken"):
            check.move(1)
    else:
        check.move(1)
    assert check.data is data
