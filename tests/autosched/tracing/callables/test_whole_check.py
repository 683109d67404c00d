"""A traced function is compared with PyTorch as a whole before it is used: when, how far, and what that finds."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import autosched
import best_spaces
from autosched import trace
from autosched.checking.functions import judgement
from autosched.checking.functions.judgement import Expected
from autosched.kernels import checked_kernels
from autosched.machine import memory
from autosched.machine.devices import cpu_target
from autosched.tracing import DynamicKernel, LoadedFunction, TracedKernel, UncheckedWarning, loaded
from autosched.tracing.callables import identity, whole_check
from autosched.tracing.callables.random_arguments import random_arguments, unknown_integers
from autosched.tracing.callables.whole_check import outcome
from autosched.tracing.translation import translate
from search_spaces import AutoschedError, InputError
from tuning_logs import TuningLog
from untuned import untuned_kernels, untuned_record

CPU = cpu_target()
Function = Callable[[Tensor], Tensor]


@pytest.fixture(autouse=True)
def user_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user for whom nothing was ever checked."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "user"))
    return tmp_path / "user"


@pytest.fixture
def mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that is wrong: differences are traced as sums, and cosines as sines. Every kernel is right by itself."""
    given, instead = translate.pointwise, {"sub": "add", "cos": "sin"}
    monkeypatch.setattr(translate, "pointwise", lambda first, name, bound: given(first, instead.get(name, name), bound))


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions that were compared since the test began."""
    done: list[str] = []
    given = whole_check._why_wrong

    def noted(claim: whole_check.Claim) -> str | None:
        done.append(claim.function.name)
        return given(claim)

    monkeypatch.setattr(whole_check, "_why_wrong", noted)
    return done


def difference(x: Tensor, y: Tensor) -> Tensor:
    return (x - y) * 2.0


X, Y = (torch.randn(8, 24, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
WRONG = r"difference\(x\[8, 24\].*do not compute what the function does.*192 of 192 elements are wrong.*PyTorch gives"


def kernel_of(function: Callable[..., Any], *inputs: Tensor, **how: Any) -> LoadedFunction:
    traced = trace(function, *inputs, **how).for_target(CPU)
    return loaded(traced, untuned_kernels(traced.workloads, CPU))


@pytest.mark.usefixtures("mistake")
def test_a_mistake_of_tracing_is_found_at_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernel_of(difference, X, Y)
    computed: list[Tensor] = []
    given = TracedKernel.computed

    def noted(self: TracedKernel, *tensors: Tensor) -> Any:
        computed.extend(tensors)
        return given(self, *tensors)

    monkeypatch.setattr(TracedKernel, "computed", noted)
    for _ in range(2):
        with pytest.raises(AutoschedError, match=WRONG):
            kernel(X, Y)
    assert len(computed) == 2, "once, on inputs of its own"
    assert all(x is not X and x is not Y for x in computed)


@pytest.mark.usefixtures("mistake")
def test_a_mistake_of_tracing_is_found_in_what_tune_gives(tmp_path: Path) -> None:
    result = autosched.tune(trace(difference, X, Y), "cpu", 2, strategy="random", log=tmp_path / "t.jsonl")
    with pytest.raises(AutoschedError, match=WRONG):
        result.kernel  # noqa: B018  # asking for it is what is tested


@pytest.mark.usefixtures("mistake")
def test_a_mistake_of_tracing_is_found_in_replay(tmp_path: Path) -> None:
    traced = trace(difference, X, Y)
    schedule = best_spaces.build(traced.workloads[0], CPU).sample(np.random.default_rng(0))
    TuningLog(tmp_path / "t.jsonl").append(untuned_record(schedule, traced.workloads[0], CPU))
    with pytest.raises(AutoschedError, match=WRONG):
        autosched.replay(traced, "cpu", log=tmp_path / "t.jsonl")


@pytest.mark.usefixtures("mistake")
def test_a_mistake_in_a_gradient_is_found() -> None:
    def function(x: Tensor) -> Tensor:
        return (x.sin() * 2.0).sum(1)

    x = X.clone().requires_grad_()
    with torch.no_grad():
        kernel_of(function, X)(X)
    with pytest.raises(AutoschedError, match=r"with its gradient.*result 1: 192 of 192 elements are wrong"):
        kernel_of(function, x, backward=True)(x)


def test_a_gradient_is_compared_once(checks: list[str]) -> None:
    x, y = X.clone().requires_grad_(), Y.clone().requires_grad_()
    kernel = kernel_of(difference, x, y, backward=True)
    for _ in range(2):
        kernel(x, y).sum().backward()
    torch.testing.assert_close(y.grad, torch.full_like(y, -4.0))
    assert checks == ["difference"]


def dynamic_difference(allow_fallback: bool = False) -> DynamicKernel:
    how: dict[str, Any] = {"dynamic": {"x": 0, "y": 0}, "sizes": (1, 16), "points": (8,)}
    kernel = kernel_of(difference, X, Y, allow_fallback=allow_fallback, **how)
    assert isinstance(kernel, DynamicKernel)
    return kernel


def test_every_size_is_compared_once(checks: list[str]) -> None:
    kernel = dynamic_difference()
    for rows in (8, 5, 5, 8):
        torch.testing.assert_close(kernel(X[:rows], Y[:rows]), difference(X[:rows], Y[:rows]))
    assert checks == ["difference"] * 2


def test_a_mistake_at_a_size_that_was_not_tuned_is_found(request: pytest.FixtureRequest) -> None:
    kernel, other = dynamic_difference(), dynamic_difference(allow_fallback=True)
    kernel(X, Y)
    request.getfixturevalue("mistake")
    with pytest.raises(AutoschedError, match="120 of 120 elements are wrong"):
        kernel(X[:5], Y[:5])
    with pytest.warns(UserWarning, match=r"left to PyTorch: .*120 of 120 elements are wrong"):
        assert torch.equal(other(X[:5], Y[:5]), difference(X[:5], Y[:5]))


def test_a_function_is_compared_once_for_all_processes_of_a_user(
    checks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        kernel = kernel_of(difference, X, Y)
        kernel(X, Y)
        kernel(X, Y)
        # As another process begins.
        checked_kernels._of.cache_clear()
    assert checks == ["difference"]
    kernel_of(difference, X[:4], Y[:4])(X[:4], Y[:4])
    monkeypatch.setattr(identity, "environment", lambda target: (("torch", "99.0"),))
    kernel_of(difference, X, Y)(X, Y)
    assert checks == ["difference"] * 3


def test_what_was_found_right_says_nothing_of_a_function_that_is_traced_to_the_same(
    request: pytest.FixtureRequest,
) -> None:
    kernel_of(lambda x, y: (x + y) * 2.0, X, Y)(X, Y)
    request.getfixturevalue("mistake")
    with pytest.raises(AutoschedError, match=WRONG):
        kernel_of(difference, X, Y)(X, Y)


@pytest.mark.usefixtures("mistake")
def test_a_call_that_is_not_allowed_is_no_first_use(checks: list[str]) -> None:
    with pytest.raises(InputError, match="takes 2 tensors"):
        kernel_of(difference, X, Y)(X)
    assert checks == []


# What must not be refused


class Module(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(24, 24))
        self.table = torch.nn.Embedding(7, 24)

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        return F.layer_norm(x @ self.weight, (24,)) + self.table(ids)


RIGHT: dict[str, tuple[Any, ...]] = {
    "positions of equal maxima": (lambda x: x.argmax(1), torch.randint(-2, 3, (64, 32))),
    "what is rounded down": (lambda x: (x * 7.3).floor(), torch.randn(512, 512).bfloat16()),
    "comparisons of sums": (lambda x, y: (x @ y) > 0, torch.randn(128, 64).half(), torch.randn(64, 128).half()),
    "differences that cancel": (lambda x: (x + 1e6).sum(1) - 1e6 * x.shape[1], torch.randn(32, 1000)),
    "logarithms of negative numbers": (lambda x: x.log().sum(1), X),
    "logarithms of rows that are the same ones": (lambda x: x.log().sum(1), X[:1].expand(8, 24)),
    "infinities": (lambda x: (x / 0.0) * 0.5, X),
    "what overflows": (lambda x: (x * 40000).exp(), X.half()),
    "integers that are divided": (lambda x, y: x // y, torch.randint(1, 9, (64,)), torch.randint(1, 9, (64,))),
    "a table and parameters": (Module(), X, torch.randint(0, 7, (8,))),
    "indices that PyTorch is given": (
        lambda x, at: x.index_add(0, at, x * 2.0),
        X,
        torch.randint(0, 8, (8,)),
    ),
    "what PyTorch has no float64 form of": (lambda x: torch.frexp(x * 2.0)[0].sum(1), X),
    "types that kernels do not know": (lambda x, y: (x * 2.0, y.abs() + 1), X, torch.randn(4, dtype=torch.complex64)),
    "floats of 8 bits": (lambda x: x.float().log(), torch.randn(8, 24).to(torch.float8_e4m3fn)),
    "windows of an argument": (lambda x: x * 2.0, torch.randn(40).unfold(0, 8, 4)),
    "no elements": (lambda x: (x * 2.0, x[:0]), X),
    "jumps of one element in many": (lambda x: torch.where(x.sigmoid() > 0.5, x, -x), torch.randn(4096).bfloat16()),
}


@pytest.mark.filterwarnings("error::autosched.tracing.UncheckedWarning")
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_not_refused(name: str, checks: list[str]) -> None:
    function, *inputs = RIGHT[name]
    with torch.no_grad():
        kernel_of(function, *inputs, allow_fallback=True)(*inputs)
    assert len(checks) == 1


def test_what_a_function_closes_over_is_used_as_it_is() -> None:
    scale = torch.full((24,), 1e-3)
    kernel_of(lambda x: (x * scale).exp(), X)(X)


# What cannot be compared


def test_random_numbers_are_not_compared() -> None:
    with pytest.warns(UncheckedWarning, match="without having been compared .*: it draws random numbers") as told:
        kernel_of(lambda x: F.dropout(x, 0.5) * 2.0, X, allow_fallback=True)(X)
    assert told[0].filename == __file__


def test_a_function_that_has_changed_is_not_called_wrong() -> None:
    factor = [2.0]
    kernel = kernel_of(lambda x: x * factor[0], X)
    factor[0] = 3.0
    with pytest.warns(UncheckedWarning, match="captures something else"):
        assert torch.equal(kernel(X), X * 2.0)


def test_what_pytorch_refuses_for_random_inputs_is_not_compared() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.linalg.cholesky(x) * 2.0

    positive = torch.eye(8) * 3.0
    with pytest.warns(UncheckedWarning, match="does not compute it for random inputs: .*cholesky"):
        torch.testing.assert_close(kernel_of(function, positive, allow_fallback=True)(positive), function(positive))


def test_bits_are_compared_in_the_type_whose_bits_they_are() -> None:
    x = torch.randn(4, 8)
    traced = trace(lambda x: (x * 2).view(torch.int16) + 1, x, allow_fallback=True)
    kernel = loaded(traced, untuned_kernels(traced.workloads, CPU))
    assert torch.equal(kernel(x), (x * 2).view(torch.int16) + 1)


def test_pytorch_is_not_given_random_positions_that_it_does_not_check() -> None:
    """It writes where they say, out of memory too."""
    x = torch.randn(1, 2, 6, 8)
    top, places = F.max_pool2d(x, 2, return_indices=True)

    def gradient(g: Tensor, x: Tensor, places: Tensor) -> Tensor:
        windows = [2, 2], [2, 2], [0, 0], [1, 1], False
        return torch.ops.aten.max_pool2d_with_indices_backward(g, x, *windows, places.view(1, 2, 3, 4))

    traced = trace(gradient, top, x, places)
    kernel = loaded(traced, untuned_kernels(traced.workloads, CPU))
    with pytest.warns(UncheckedWarning, match="PyTorch takes places on trust"):
        torch.testing.assert_close(kernel(top, x, places), gradient(top, x, places))
    assert not random_arguments(traced, 0)[2].any()


def test_what_there_is_no_memory_for_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernel_of(difference, X, Y)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 20_000)
    with pytest.warns(UncheckedWarning, match="out of memory: the results of difference.* in float64 need"):
        torch.testing.assert_close(kernel(X, Y), difference(X, Y))


def test_a_gpu_is_asked_for_no_rows_for_each_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch stores 1000 rows and 100 sums of 8 columns, and not the rows of all others for each of 100 segments."""

    def function(x: Tensor, offsets: Tensor) -> Tensor:
        return torch.segment_reduce(x, "sum", offsets=offsets, unsafe=True)

    x, offsets = torch.randn(1000, 8), torch.arange(101) * 10
    of_rows, of_all = 1000 * 8, 100 * 1000 * 8
    asked: dict[str, int] = {}

    def noted(what: str, needed: int, device: torch.device) -> Any:
        asked[device.type] = needed
        raise RuntimeError("out of memory")

    monkeypatch.setattr(whole_check, "memory_for", noted)
    for device in ("cpu", "cuda"):
        kernel = kernel_of(function, x, offsets)
        claim = replace(kernel.first_use.claim(), device=torch.device(device))
        with pytest.raises(whole_check._UnjudgedError):
            whole_check._why_wrong(claim)
    assert asked["cpu"] > 8 * of_all
    assert 8 * of_rows < asked["cuda"] < 8 * 8 * of_rows


def test_indices_are_drawn_that_pytorch_takes() -> None:
    def function(x: Tensor, at: Tensor) -> Tensor:
        return x.index_add(0, at, x * 2.0)

    at = torch.zeros(8, dtype=torch.int64)
    assert unknown_integers(trace(function, X, at, allow_fallback=True))
    assert not unknown_integers(trace(lambda ids, table: F.embedding(ids, table), at, X))


def test_arguments_of_all_kinds_are_drawn_as_they_lie() -> None:
    windows, empty = torch.randn(40).unfold(0, 8, 4), torch.randn(0, 3)
    other = torch.randn(5, dtype=torch.complex64)
    traced = trace(lambda a, b, c: (a * 2.0, b, c.abs()), windows, empty, other, allow_fallback=True)
    drawn = random_arguments(traced, 0)
    assert [(t.shape, t.stride(), t.dtype) for t in drawn] == [
        (t.shape, t.stride(), t.dtype) for t in (windows, empty, other)
    ]


# The judgement


def why_wrong(function: Callable[..., Any], change: Callable[[Tensor], Tensor], *inputs: Tensor) -> str | None:
    epsilon = max(torch.finfo(x.dtype).eps for x in inputs if x.is_floating_point())
    expected = Expected(functools.partial(outcome, function, ()), inputs, epsilon)
    return expected.why_wrong([change(function(*inputs))])


def changed_at(place: tuple[int, ...], value: float) -> Callable[[Tensor], Tensor]:
    def change(result: Tensor) -> Tensor:
        result = result.clone()
        result[place] = value
        return result

    return change


@pytest.mark.parametrize("piece", [judgement._PIECE, 50, 7], ids=["whole", "two rows", "parts of rows"])
@pytest.mark.parametrize(
    ("function", "change", "found"),
    [
        (torch.exp, changed_at((2, 3), 0.5), r"1 of 192 elements are wrong; the first, \[2, 3\], is 0.5"),
        (torch.exp, changed_at((2, 3), math.nan), r"1 of 192 .*is nan"),
        (torch.exp, changed_at((2, 3), math.inf), r"1 of 192 .*is inf"),
        (lambda x: x / 0.0, changed_at((2, 3), 1.0), r"1 of 192 .*is 1;.* expected -?inf"),
        (torch.log, lambda r: r.nan_to_num(0.0), r"9\d of 192"),
        (lambda x: x.argmax(1), lambda r: (r + 1) % 24, r"8 of 8"),
        (lambda x: x > 0, lambda r: ~r, "192 of 192"),
        (lambda x: x.sum(), changed_at((), 0.5), r"1 of 1 .*\[\], is 0.5"),
        (lambda x: torch.complex(x, x), changed_at((2, 3), 0.5), r"2 of 384 .*\[2, 3, 0\], is 0.5"),
        (torch.exp, lambda r: r * 1.001, "192 of 192"),
        (torch.exp, lambda r: r[:4], r"got \[4, 24\] torch.float32; expected \[8, 24\]"),
        (lambda x: (x * 100).int(), lambda r: r.long(), r"got .* torch.int64; expected .* torch.int32"),
    ],
)
def test_wrong_results_are_found(
    function: Callable[..., Any],
    change: Callable[[Tensor], Tensor],
    found: str,
    piece: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(judgement, "_PIECE", piece)
    reason = why_wrong(function, change, X)
    assert reason is not None
    assert re.match(found, reason), reason


def test_a_function_that_jumps_may_jump_at_a_few_elements_and_not_at_many() -> None:
    x = torch.randn(100, 1000, generator=torch.Generator().manual_seed(0)).bfloat16()

    def function(x: Tensor) -> Tensor:
        return (x * 7.3).floor()

    def up(count: int) -> Callable[[Tensor], Tensor]:
        return lambda r: r + (torch.arange(r.numel()).view_as(r) < count)

    assert why_wrong(function, up(50), x) is None
    assert why_wrong(function, up(20_000), x) is not None


@pytest.mark.parametrize("refused", [torch.float64, torch.float32])
def test_what_pytorch_computes_in_one_type_only_is_judged_by_that(refused: torch.dtype) -> None:
    def function(x: Tensor) -> Tensor:
        if x.dtype == refused:
            raise RuntimeError("not implemented")
        return x.exp()

    expected = Expected(functools.partial(outcome, function, ()), [X], torch.finfo(X.dtype).eps)
    assert expected.why_wrong([X.exp()]) is None
    assert expected.why_wrong([X.exp() * 1.001]) is not None


def test_another_rounding_of_what_cancels_is_right() -> None:
    x = torch.randn(8, 4096, generator=torch.Generator().manual_seed(0)) * 1e3

    def function(x: Tensor) -> Tensor:
        return x.sum(1)

    backwards = x.flip(1).cumsum(1)[:, -1]
    assert why_wrong(function, lambda r: backwards, x) is None


@pytest.mark.parametrize(
    ("function", "rounding", "mistake"),
    [
        # A mean of differences from the mean, of which nothing is left; eager's own happen to sum up to 0.
        (lambda x: (x - x.mean()).mean(-1).mean(), 1.35e-9, 1e-4),
        # What is computed twice need not be the same.
        (lambda x: ((v := x.sin().var()[None]).amax() - v.amin()).ceil(), 1.0, 20.0),
    ],
)
def test_results_that_are_rounding_alone_are_right(function: Function, rounding: float, mistake: float) -> None:
    x = torch.rand(33, 8, 3, generator=torch.Generator().manual_seed(0))
    expected = Expected(lambda x: (function(x),), [x], torch.finfo(torch.float32).eps)
    assert expected.why_wrong([torch.tensor(rounding)]) is None
    assert expected.why_wrong([torch.tensor(mistake)])


def test_one_call_of_pytorch_is_enough_where_nothing_is_in_doubt() -> None:
    calls: list[torch.dtype] = []

    def function(x: Tensor) -> Tensor:
        calls.append(x.dtype)
        return x.exp()

    expected = Expected(functools.partial(outcome, function, ()), [X], torch.finfo(X.dtype).eps)
    assert expected.why_wrong([X.exp()]) is None
    assert calls == [torch.float64]
