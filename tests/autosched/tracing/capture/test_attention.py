"""Tests of attention as one operator."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.two_tensor import TwoTensor

from autosched.tracing.capture.rewriting.attention import OPERATOR, attention, parts_of_attention

HEADS = {
    "plain": ((2, 4, 8, 16), (2, 4, 8, 16), None, False, None, False),
    "masked": ((2, 4, 8, 16), (2, 4, 12, 16), torch.bool, False, None, False),
    "biased": ((2, 4, 8, 16), (2, 4, 12, 16), torch.float32, False, 0.3, False),
    "causal": ((2, 4, 8, 16), (2, 4, 8, 16), None, True, None, False),
    "grouped heads": ((2, 4, 8, 16), (2, 2, 8, 16), None, False, None, True),
    "broadcast batches": ((2, 1, 8, 16), (1, 4, 8, 16), None, False, None, False),
    "no heads": ((2, 8, 16), (2, 8, 16), None, False, None, False),
}


def arguments(case: str, dtype: torch.dtype = torch.float32) -> tuple[Any, ...]:
    q_shape, k_shape, mask, *rest = HEADS[case]
    torch.manual_seed(0)
    q, k, v = (torch.randn(shape, dtype=dtype) for shape in (q_shape, k_shape, k_shape))
    drawn = torch.randn(q_shape[-2], k_shape[-2])
    return (q, k, v, None if mask is None else drawn > 0 if mask is torch.bool else drawn.to(dtype), *rest)


@pytest.mark.parametrize("case", HEADS)
def test_without_data_the_operator_has_the_shape_and_strides_of_its_results(case: str) -> None:
    torch.library.opcheck(OPERATOR, arguments(case), test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("case", HEADS)
def test_its_parts_compute_what_the_library_computes(case: str) -> None:
    given = arguments(case)
    exact = OPERATOR(*(t.double() if isinstance(t, Tensor) and t.is_floating_point() else t for t in given))
    made = parts_of_attention(*given)
    torch.testing.assert_close(made, exact.float())
    assert made.stride() == exact.stride()


def test_where_a_gradient_is_wanted_or_something_dropped_the_call_stays_as_it_is() -> None:
    q, k, v, *_ = arguments("plain")

    def operators(dropout: float) -> set[object]:
        return {n.target for n in make_fx(lambda q, k, v: attention(q, k, v, None, dropout))(q, k, v).graph.nodes}

    assert OPERATOR in operators(0.0)
    assert OPERATOR not in operators(0.5)
    q.requires_grad_()
    assert attention(q, k, v).grad_fn is not None
    with torch.no_grad():
        assert OPERATOR in operators(0.0)


def test_within_transforms_and_on_tensors_of_tensors_the_call_stays_as_it_is() -> None:
    q, k, v, *_ = arguments("plain")

    def on_twins(q: Tensor, k: Tensor, v: Tensor) -> Any:
        made: Any = attention(TwoTensor(q, q), TwoTensor(k, k), TwoTensor(v, v))
        return made.a

    for function in (lambda q, k, v: torch.vmap(attention)(q, k, v), on_twins):
        assert OPERATOR not in {n.target for n in make_fx(function)(q, k, v).graph.nodes}
        torch.testing.assert_close(function(q, k, v), F.scaled_dot_product_attention(q, k, v))


def test_under_autocast_it_has_the_element_type_of_the_function() -> None:
    q, k, v, mask, *_ = arguments("biased")
    with torch.autocast("cpu", torch.bfloat16):
        made, expected = attention(q, k, v, mask), F.scaled_dot_product_attention(q, k, v, mask)
    assert made.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(made, expected)


def test_a_mask_expanded_along_its_columns_reaches_the_library_with_dense_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    q, k, v, *_ = arguments("plain")
    mask = (torch.arange(8)[None, None, :, None] > 2).expand(2, 4, 8, 8)
    expected = F.scaled_dot_product_attention(q, k, v, mask)
    library, strides = F.scaled_dot_product_attention, []

    def called(*tensors: Tensor, **options: Any) -> Tensor:
        strides.append(tensors[3].stride())
        return library(*tensors, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", called)
    torch.testing.assert_close(OPERATOR(q, k, v, mask, False, None, False), expected, equal_nan=True)
    assert strides == [(0, 0, 8, 1)]
