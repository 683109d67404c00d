"""What is left to PyTorch: any function that PyTorch can capture runs, and gives what it gives without kernels."""

from __future__ import annotations

import functools
import math
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_flatten

import autosched
from autosched import InputError, trace
from autosched.machine.devices import cpu_target
from autosched.tracing import loaded
from autosched.tracing.operators.pointwise import rules as pointwise_rules
from autosched.tracing.translation.translate import DefectWarning
from traced_cases import Z
from untuned import untuned_kernels

R = functools.partial(torch.randn, generator=torch.Generator().manual_seed(0))
Pair = namedtuple("Pair", "first second")


def positive(n: int) -> Tensor:
    x = R(n, n)
    return x @ x.t() + n * torch.eye(n)


def changed_in_place(x: Tensor) -> Tensor:
    y = x.clone()
    y[1:3].mul_(2)
    y[:, 0] = 7.0
    return y


def either(x: Tensor) -> Tensor:
    chosen = torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: y - 1, (x,))
    return cast(Tensor, chosen) + 1


def rotated(x: Tensor, f: Tensor) -> Tensor:
    return torch.view_as_real(torch.view_as_complex(x.reshape(4, 3, 2)) * f).flatten(1) * 2


# name: the function, and its arguments.
CASES: dict[str, tuple[Callable[..., Any], *tuple[Tensor, ...]]] = {
    "reshaped integers": (lambda i: i[:, None] == i[None], Z(9, 6)),
    "joined integers": (lambda i, j, w: F.embedding(torch.cat([i, j], 1), w) * 2, Z(9, 3, 4), Z(9, 3, 2), R(9, 4)),
    "converted integers": (lambda i: i.to(torch.int32).view(2, 3).float() * 2, Z(9, 6)),
    "large quotients": (lambda i, j: torch.div(i, j, rounding_mode="floor"), Z(1000, 6) * 10**6, Z(9, 6) + 1),
    "float64 in between": (lambda x: (x.double() * 2).sum(-1).float() + x.sum(-1), R(4, 5)),
    "float64 argument": (lambda x, y: (x * 2).float() + y, R(4, 5).double(), R(4, 5)),
    "strided float64": (lambda x: x + 1, R(5, 4).double().t()),
    "complex in between": (lambda x: torch.fft.rfft(x).abs() + 1, R(4, 8)),
    "complex argument": (rotated, R(4, 6), torch.polar(torch.ones(4, 3), R(4, 3))),
    "lazily negated": (lambda x: torch.fft.rfft(x).conj().imag * 2, R(4, 8)),
    "nan and powers of infinity": (lambda x: (x * math.nan, x**math.inf, x**-math.inf), R(4, 5)),
    "cond": (either, R(4, 5)),
    "checked inverse": (lambda x: torch.inverse(x) + 1, positive(5)),
    "cholesky": (lambda x: torch.linalg.cholesky(x) @ x, positive(5)),
    "solve": (lambda x, b: torch.linalg.solve(x, b) * 2, positive(5), R(5, 2)),
    "lu_factor": (lambda x: torch.linalg.lu_factor(x), positive(5)),
    "no dimension": (lambda x, i: (x.gather(0, i), x.index_select(0, i[None]), x.scatter(0, i, 2.0)), R(()), Z(1)),
    "number": (lambda x: x * x.sum().item(), R(4, 5)),
    "filled with a number": (lambda x: torch.full_like(x, x.sum().item()) + x, R(4, 5)),
    "number returned": (lambda x: x.sum().item(), R(4, 5)),
    "shape that depends on data": (lambda x: (x[x > 0] * 2).sum() + x, R(4, 5)),
    "unique": (lambda i: torch.unique(i), Z(4, 8)),
    "memory of a view": (lambda x: torch.as_strided(x.t() + 1, (3, 2), (1, 5)), R(4, 5)),
    "memory beyond a view": (lambda x: torch.as_strided((x * 2)[1:, 1:], (3, 2), (2, 5), 1) + 1, R(4, 5)),
    "memory in its own order": (lambda x: torch.as_strided(x.t() + 1, (5, 4), (4, 1)), R(4, 5)),
    "in place": (changed_in_place, R(4, 5)),
    "positions in large windows": (lambda x: F.max_pool2d(x * 2, 13, return_indices=True), R(1, 2, 15, 16)),
    "lstm": (torch.nn.LSTM(5, 3), R(2, 2, 5)),
    "nothing for a kernel": (lambda x: x.sort(0)[0].sort(1)[0], R(4, 5)),
    "constants": (lambda x: (torch.tensor([1, 2]), torch.eye(3), torch.zeros(3, dtype=torch.float64)), R(4)),
    "batch statistics": (
        lambda x, w, b: torch.native_batch_norm(x, w, b, None, None, True, 0.1, 1e-5),
        *(R(4, 5), R(5), R(5)),
    ),
}


def kernel_of(function: Callable[..., Any], *inputs: Tensor) -> Any:
    traced = trace(function, *inputs, allow_fallback=True)
    return loaded(traced, untuned_kernels(traced.workloads, cpu_target()))


def assert_same(got: Any, want: Any) -> None:
    """The same numbers in the same structure."""
    (ours, structure), (theirs, expected) = tree_flatten(got), tree_flatten(want)
    assert structure == expected
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(b, Tensor):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
        else:
            assert a == (pytest.approx(b, rel=1e-4) if isinstance(b, float) else b)


@pytest.mark.parametrize("name", CASES)
def test_what_has_no_kernel_is_left_to_pytorch_and_right(name: str) -> None:
    function, *inputs = CASES[name]
    with torch.no_grad():
        assert_same(kernel_of(function, *inputs)(*inputs), function(*inputs))


def test_one_position_at_an_index_that_is_data_is_looked_up_without_pytorch() -> None:
    def function(x: Tensor, i: Tensor) -> Tensor:
        return x[:, i] * 2

    x = R(4, 5)
    traced = trace(function, x, torch.tensor(2))
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    for i in (2, 0, -1):
        torch.testing.assert_close(kernel(x, torch.tensor(i)), x[:, i] * 2)
    with pytest.raises(InputError, match="number that depends on data, which is returned"):
        trace(lambda x: x.sum().item(), x)


def test_what_pytorch_checks_is_checked() -> None:
    kernel = kernel_of(lambda x: torch.inverse(x) * 2, positive(4))
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        kernel(torch.zeros(4, 4))


def test_what_nothing_comes_of_is_no_reason_to_refuse() -> None:
    def function(x: Tensor) -> Tensor:
        x.sort(0)
        return x * 2

    assert not trace(function, R(4)).left_to_pytorch


@pytest.mark.parametrize(
    "function",
    [
        lambda x: {"b": x + 1, "a": x * 2},
        lambda x: (x + 1, [x * 2, {"c": x - 1}]),
        lambda x: (x + 1, None, 3, "name", 0.5),
        lambda x: [x + 1, x * 2],
        lambda x: Pair(x + 1, x * 2),
        lambda x: x.max(-1),
        lambda x: (x + 1,),
        lambda x: None,
    ],
)
def test_results_come_in_the_structure_that_the_function_gives_them(function: Callable[..., Any]) -> None:
    x = R(4, 5)
    assert_same(kernel_of(function, x)(x), function(x))


def test_results_with_gradients_come_in_their_structure_too() -> None:
    def function(x: Tensor) -> Any:
        return {"double": x * 2, "more": (x.exp(), None, Pair(x.argmax(-1), 7))}

    x = R(4, 5).requires_grad_()
    traced = trace(function, x, backward=True)
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    made, wanted = kernel(x), function(x)
    assert_same(made, wanted)
    (got,) = torch.autograd.grad([made["double"], made["more"][0]], [x], [torch.ones_like(x)] * 2)
    (want,) = torch.autograd.grad([wanted["double"], wanted["more"][0]], [x], [torch.ones_like(x)] * 2)
    torch.testing.assert_close(got, want)


def test_functions_without_kernels_are_tuned_without_a_trial(tmp_path: Path) -> None:
    def function(x: Tensor) -> Tensor:
        return x.sort(0)[0]

    x = R(4, 5)
    result = autosched.tune(trace(function, x, allow_fallback=True), target="cpu", log=tmp_path / "log.jsonl")
    assert "nothing to tune" in str(result)
    torch.testing.assert_close(result.kernel(x), x.sort(0)[0])


def test_a_rule_that_fails_is_a_defect_that_names_operator_and_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> Any:
        raise KeyError("no reason")

    monkeypatch.setitem(cast(dict[str, Any], pointwise_rules.RULES), "exp", failing)
    x = R(4)
    with (
        pytest.warns(DefectWarning, match="defect of autosched"),
        pytest.raises(InputError, match=r"aten.exp.default \(test_fallback.py:\d+: .*KeyError: 'no reason'") as caught,
    ):
        trace(lambda x: x.exp(), x)
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.warns(DefectWarning):
        kernel = kernel_of(lambda x: x.exp(), x)
    torch.testing.assert_close(kernel(x), x.exp())


def test_tensors_without_strides_are_refused() -> None:
    for sparse in (R(4, 4).to_sparse_csr(), R(4, 4).to_sparse()):
        with pytest.raises(InputError, match=r"example input 1 is torch.sparse\w*; expected"):
            trace(lambda x, a: a @ x, R(4, 4), sparse, allow_fallback=True)
