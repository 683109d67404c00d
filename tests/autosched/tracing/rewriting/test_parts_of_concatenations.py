"""Parts of concatenations: what undoes one reads what was concatenated."""

from __future__ import annotations

import torch
from torch import Tensor

from autosched.tracing.fusion.regions import below
from autosched.tracing.values.values import Joined
from rewritten_values import right_rewritings


def test_a_split_concatenation_is_not_concatenated() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        first, second = torch.cat([x, y], 1).split([8, 4], 1)
        return first.exp() @ second

    inputs = [torch.randn(8, 8), torch.randn(8, 4)]
    found = right_rewritings(function, inputs, "eager")[0]
    assert not any(isinstance(v, Joined) for v in below(found.results))


def test_a_part_across_two_stays_one_of_the_whole() -> None:
    inputs = [torch.randn(8, 8), torch.randn(8, 4)]
    assert not right_rewritings(lambda x, y: torch.cat([x, y], 1)[:, 4:10].exp(), inputs, "eager")
