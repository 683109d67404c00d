"""Arguments of operators: each is used, refused, or known to change nothing."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from autosched import trace
from autosched.tracing.operators import (
    creation_rules,
    gather_rules,
    product_rules,
    reduction_rules,
    scatter_rules,
    view_translation,
)
from autosched.tracing.operators.binding import bind, check_declared
from autosched.tracing.operators.pointwise import rules as pointwise_rules
from autosched.tracing.operators.rules import UnsupportedError
from traced_reference import computed

TABLES = (
    creation_rules,
    gather_rules,
    pointwise_rules,
    product_rules,
    reduction_rules,
    scatter_rules,
    view_translation,
)


RULES = [*(item for table in TABLES for item in table.RULES.items()), *reduction_rules.PAIRS.items()]


@pytest.mark.parametrize(("name", "rule"), RULES)
def test_a_rule_declares_every_argument_that_it_takes(name: str, rule: Callable[..., Any]) -> None:
    kinds = {p.kind for p in inspect.signature(rule).parameters.values()}
    assert not kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}, "an argument may be ignored"


def test_an_argument_that_a_rule_does_not_declare_is_refused_by_name() -> None:
    bound = bind(torch.ops.aten.round.decimals, (None,), {"decimals": 2})
    with pytest.raises(UnsupportedError, match="decimals=2"):
        check_declared(lambda x: x, bound, own=0)
    check_declared(lambda x, decimals: x, bound, own=0)
    required = bind(torch.ops.aten.squeeze.dim, (None, 3), {})
    with pytest.raises(UnsupportedError, match="dim=3"):
        check_declared(lambda x: x, required, own=0)
    check_declared(lambda x, y: x, bind(torch.ops.aten.add.Tensor, (None, None), {"alpha": 1}), own=0)


def test_a_result_that_is_not_dense_is_refused() -> None:
    keywords = {"layout": torch.sparse_coo}
    with pytest.raises(UnsupportedError, match="sparse_coo"):
        bind(torch.ops.aten.zeros_like.default, (None,), keywords)


NAN = torch.full((4, 4), math.nan)
MANY = torch.linspace(-30, 30, 16).view(4, 4)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x: x.round(decimals=2), (MANY,)),
        (lambda x: x.round(decimals=-1), (MANY,)),
        (lambda x, y: torch.rsub(x, y, alpha=3), (MANY, MANY.t())),
        (lambda c, a: torch.addmm(c, a, a, beta=0), (NAN, MANY)),
        (lambda c, a: torch.addmm(c, a, a, beta=0, alpha=2), (NAN, MANY)),
        (lambda c, a: torch.addmm(a, c, c, alpha=0), (NAN, MANY)),
        (lambda c, a: torch.addmm(a, c, c, alpha=0, beta=3), (NAN, MANY)),
        (lambda c, a: torch.baddbmm(c[None], a[None], a[None], beta=0), (NAN, MANY)),
        (lambda x: x.sum(-1, dtype=torch.float16), (MANY / 7,)),
        (lambda x: x.mean(dtype=torch.float32), (MANY.bfloat16() / 7,)),
        (lambda x, y: torch.max(x, y), (MANY, MANY.t())),
        (lambda c, a: torch.addbmm(c, a.view(2, 2, 4), a.view(2, 4, 2), beta=2), (MANY[:2, :2], MANY)),
        (lambda c, a: torch.addmv(c[0], a, c[1], beta=2, alpha=3), (MANY, MANY)),
        (lambda x, y: torch.dist(x, y, p=3), (MANY, MANY.t())),
        (lambda x: x.angle(), (MANY,)),
        (lambda x, y: torch.ldexp(x, y.int()), (MANY, MANY)),
    ],
)
def test_arguments_that_are_not_what_they_are_by_default_are_used(
    function: Callable[..., Any], inputs: tuple[torch.Tensor, ...]
) -> None:
    (got,) = computed(trace(function, *inputs), inputs)
    want = function(*inputs)
    tolerance = 2.0**-10 if want.dtype == torch.float16 else 1e-5
    torch.testing.assert_close(got.to(want.dtype), want, rtol=tolerance, atol=tolerance)


def test_a_sum_in_integers_cuts_every_element_first() -> None:
    x = MANY * 100
    (got,) = computed(trace(lambda x: x.sum(dtype=torch.int64), x), (x,))
    assert got.equal(x.long().sum())
