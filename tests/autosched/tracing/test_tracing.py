"""Traced functions: what their workloads compute, in float64 and by kernels, against the functions themselves."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import autosched
from autosched import InputError, TracedFunction, trace
from autosched.machine.devices import cpu_target
from autosched.tracing import loaded
from traced_cases import CASES, R
from traced_reference import computed
from untuned import untuned_kernels

# How many kernels some of them take, where that is what tracing is about.
KERNELS = {"softmax0": 1, "ce": 1, "embed_ln": 1, "masked": 1, "linear": 1, "mmT": 1, "ffn": 1, "perm_reshape": 1}
KERNELS |= {"attn": 1, "attn_heads": 2}
KERNELS |= {"rope_halves": 1, "rope_rolled": 1, "rope_pairs": 1}
KERNELS |= {"viewonly": 0, "ident": 0, "size1": 1, "logsumexp": 1, "var": 1, "argmax": 1, "outer_softmax_mm": 1}


def as_tuple(made: Any) -> tuple[Tensor, ...]:
    return (made,) if isinstance(made, Tensor) else tuple(made)


def expected(function: Callable[..., Any], inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """What the function gives in float64."""
    return as_tuple(function(*(x.double() if x.dtype == torch.float32 else x for x in inputs)))


@functools.cache
def traced_case(name: str) -> TracedFunction:
    return trace(*CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_the_workloads_of_a_function_compute_what_it_does(name: str) -> None:
    function, *inputs = CASES[name]
    traced = traced_case(name)
    low = any(x.dtype == torch.bfloat16 for x in inputs)
    for got, want in zip(computed(traced, tuple(inputs)), expected(function, inputs), strict=True):
        assert got.shape == want.shape
        # Constants of the function are float32; bfloat16 is rounded after every operator, by the function alone.
        tolerance = 2.0**-6 if low else 1e-6
        torch.testing.assert_close(got.double(), want.double(), rtol=tolerance, atol=tolerance, equal_nan=True)
    if name in KERNELS:
        assert len(traced.steps) == KERNELS[name], str(traced)


@pytest.mark.parametrize(
    "name", ["gelu", "softmax0", "ln", "gn", "ce", "ce_mean", "argmax", "embed_ln", "index2", "masked"]
)
@pytest.mark.parametrize("more", [False, True], ids=["", "again"])
def test_kernels_of_a_traced_function_compute_what_it_does(name: str, more: bool) -> None:
    check_on_cpu(name, int(more))


@pytest.mark.parametrize(
    "name",
    [
        "const",
        "linear",
        "mmT",
        "bmm",
        "attn",
        "size1",
        "sumall",
        "scalar_out",
        "maxdim",
        "rounds",
        "bf16",
        "bn_train_stats",
        "rope_halves",
        "rope_rolled",
        "rope_pairs",
    ],
)
def test_products_and_several_results_come_out_of_kernels_too(name: str) -> None:
    check_on_cpu(name, 0)


def check_on_cpu(name: str, seed: int) -> None:
    function, *inputs = CASES[name]
    traced = traced_case(name).for_target(cpu_target())
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target(), seed))
    made = kernel(*inputs)
    assert isinstance(made, Tensor) == isinstance(function(*inputs), Tensor)
    for got, want in zip(as_tuple(made), as_tuple(function(*inputs)), strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        # Both are float32 of a few dozen operations: 1e-5. bfloat16 rounds at the same points.
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def test_a_function_that_is_traced_is_not_run() -> None:
    runs: list[type] = []

    def function(x: Tensor) -> Tensor:
        runs.append(type(x))
        return x * 2

    trace(function, torch.full((4,), math.nan))
    assert runs
    assert Tensor not in runs, "only tensors without data may have gone through it"


def test_an_operator_that_is_registered_between_two_traces_is_known_to_the_second() -> None:
    trace(lambda x: x * 2, R(4))
    library = torch.library.Library("registered_between_two_traces", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")
    x = R(4)
    (got,) = computed(trace(lambda x: torch.ops.registered_between_two_traces.twice(x), x), (x,))
    torch.testing.assert_close(got, 2 * x.double())


def test_what_is_not_supported_is_named_with_the_line_of_the_function() -> None:
    def function(x: Tensor) -> Tensor:
        shifted = x + 1
        return shifted.median()

    with pytest.raises(InputError, match=r"aten.median.default \(test_tracing.py:\d+: return shifted.median\(\)\)"):
        trace(function, R(4, 8))


def test_what_is_not_supported_is_left_to_pytorch_on_request() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        values, places = (x * 2).sort(-1)
        return values.exp(), places

    x = R(4, 8)
    traced = trace(function, x, allow_fallback=True)
    assert len(traced.left_to_pytorch) == 2
    assert "aten.sort" in traced.left_to_pytorch[0]
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    for got, want in zip(kernel(x), function(x), strict=True):
        torch.testing.assert_close(got, want)


TWO_TABLES = (R(9, 4), torch.tensor([8, 7, 1]), torch.tensor([2, 1, 0]))


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda a, b: a**b, (torch.tensor([0.0, -2.0, -3.0, -2.0, 2.0]), torch.tensor([0.0, 3.0, 2.0, 0.5, -1.0]))),
        (lambda a: a % 0.1, (torch.tensor([1.0, -1.0, 0.35, 5.0]),)),
        (lambda a: torch.fmod(a, 0.3), (torch.tensor([100.0, -100.0, 0.3]),)),
        (lambda a: a % math.inf, (torch.tensor([1.0, -1.0, 0.0]),)),
        (lambda a: torch.div(a, 0.1, rounding_mode="floor"), (torch.tensor([5.0, -5.0, 0.35]),)),
        (lambda a: a.argmax(-1), (torch.tensor([[1.0, math.nan, 3.0], [1.0, 2.0, 2.0]]),)),
        (lambda a, b: (a + b).float(), (torch.tensor([True, True, False]), torch.tensor([True, False, False]))),
        (lambda a: a.clamp(min=0.1).float(), (torch.tensor([0.0, 1.0], dtype=torch.bfloat16),)),
        (lambda a: a.masked_fill(a > 0, 0.1).float(), (torch.tensor([0.0, 1.0], dtype=torch.bfloat16),)),
        (lambda a: torch.full((2,), 0.1, dtype=torch.bfloat16).float() + a, (torch.zeros(2),)),
        (lambda w, i, j: F.embedding(j, w[:3]) + F.embedding(i, w), TWO_TABLES),
        (lambda a: F.group_norm(a, 2, torch.arange(4.0), torch.ones(4)), (R(2, 4, 5),)),
        (lambda a: a.repeat(2, 3) + 1, (R(2, 3),)),
        (lambda a, b: (a.sum(0) + b, b * 2), (R(0, 4), R(4))),
        (lambda a: a[:, :0].softmax(-1) @ a[:0, :], (R(3, 4),)),
        (lambda a: torch.cat([torch.zeros(3, 1), a[:, :0]], 1).cumsum(0) + 1, (R(3, 4),)),
        (lambda a: (a, a.t()), (R(3, 4),)),
        (lambda a: a.sort(-1)[0], (R(3, 4),)),
    ],
)
def test_a_function_and_its_kernels_agree_where_it_is_easy_not_to(
    function: Callable[..., Any], inputs: tuple[Tensor, ...]
) -> None:
    traced = trace(function, *inputs, allow_fallback=True)
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    for got, want in zip(as_tuple(kernel(*inputs)), as_tuple(function(*inputs)), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=2e-6, equal_nan=True)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda a: a.scatter(1, torch.zeros(3, 1, dtype=torch.int64), a[:, :1], reduce="add"), "reduce='add'"),
        (lambda a: a.view(torch.int32), "the bits of one element type"),
        (lambda a: a.to(torch.float8_e4m3fnuz).float(), "float8_e4m3fnuz; expected one of"),
        (lambda a: a[a > 0] * 2, "depends on data|cannot be captured"),
    ],
)
def test_what_would_come_out_wrong_is_refused(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        trace(function, R(3, 4))


def test_the_line_is_the_users_in_partial_functions_and_methods() -> None:
    class Owner:
        def method(self, x: Tensor) -> Tensor:
            return x.sort(0)[0]

    def function(n: int, x: Tensor) -> Tensor:
        return x.sort(n)[0]

    for called in (Owner().method, functools.partial(function, 0)):
        with pytest.raises(InputError, match=r"test_tracing\.py:\d+: return x\.sort"):
            trace(called, R(3, 4))


def test_the_labels_of_kernels_of_one_name_differ_by_their_sizes() -> None:
    labels = [trace(lambda x, w: x @ w, R(m, 16), R(16, 8)).workloads[0].label for m in (4, 32)]
    assert labels == ["traced_mm_sums 4x8 over 16 float32", "traced_mm_sums 32x8 over 16 float32"]


def test_float64_is_refused() -> None:
    with pytest.raises(InputError, match="float64; expected one of"):
        trace(lambda x: x * 2, R(4).double())


@pytest.mark.parametrize("backward", [False, True])
def test_a_decision_by_data_is_refused_at_the_line_of_the_user(
    backward: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    def doubled(x: Tensor) -> Tensor:
        y = x * 2
        if y.sum() > 0:
            return y
        return x

    message = r"doubled cannot be captured.*test_tracing\.py:\d+: if y\.sum\(\) > 0:\).*expected .*torch\.where"
    with pytest.raises(InputError, match=message) as raised:
        trace(doubled, R(4).requires_grad_(backward), backward=backward)
    assert len(str(raised.value).splitlines()) == 1
    assert capfd.readouterr().err == ""


def test_a_gradient_by_torch_func_is_refused_at_its_line() -> None:
    # Of what torch.export makes of this one, decompositions would end the process.
    def pulled_back(x: Tensor, slope: Tensor) -> Tensor:
        _, pull = torch.func.vjp(lambda x: x.cumsum(1), x)
        return pull(slope)[0]

    message = r"pulled_back cannot be captured \(test_tracing\.py:\d+: .*torch\.func.*backward=True"
    with pytest.raises(InputError, match=message):
        trace(pulled_back, R(3, 4), R(3, 4))


@pytest.mark.parametrize("take", [float, int, lambda x: range(9)[x.long()]], ids=["float", "int", "index"])
def test_a_number_out_of_a_tensor_is_refused_in_the_words_of_the_project(take: Callable[[Tensor], float]) -> None:
    with pytest.raises(InputError, match=r"test_tracing\.py:\d+: .*Python takes a value out of a tensor"):
        trace(lambda x: x[: int(take(x.max()))], R(4))


def test_an_error_within_a_function_is_shown_with_its_line() -> None:
    with pytest.raises(InputError, match=r"test_tracing\.py:\d+: .*: RuntimeError: shape '\[3, -1\]' is invalid"):
        trace(lambda x: x.reshape(3, -1), R(4))


def test_what_a_function_says_while_it_is_traced_is_heard(capsys: pytest.CaptureFixture[str]) -> None:
    def loud(x: Tensor) -> Tensor:
        print("tracing", file=sys.stderr)
        return x * 2

    trace(loud, R(4))
    assert "tracing" in capsys.readouterr().err


def test_a_tensor_that_is_given_twice_is_two_arguments() -> None:
    x = R(4)
    traced = trace(lambda a, b, c: a - b * c, x, x, x)
    assert [source.name for source in traced.arguments] == ["a", "b", "c"]
    assert len({view.value for step in traced.steps if step.assembled for view in step.assembled.inputs}) == 3


def test_an_example_that_is_a_parameter_as_well_is_an_argument() -> None:
    linear = torch.nn.Linear(4, 4, bias=False)
    (step,) = trace(linear, linear.weight).steps
    assert step.assembled is not None
    assert len({view.value for view in step.assembled.inputs}) == 2


def test_what_traced_functions_print_names_results_and_other_cuts() -> None:
    traced = trace(lambda x: (x * 2, (x * 2).sum(-1)), R(4, 8))
    assert str(traced).splitlines()[-2:] == ["returns mul, sum_1", "also cut into 2 kernels, which are tuned too"]


def test_batch_norm_by_given_statistics_is_one_kernel_wherever_its_tensors_are() -> None:
    """Its other results are empty on a CPU, and statistics elsewhere."""
    given = [R(2, 3, 4), R(3), R(3).abs(), R(3), R(3)]
    for device in ("cpu", "meta"):
        arguments = [x.to(device) for x in given]
        assert len(trace(lambda x, *v: F.relu(F.batch_norm(x, *v)), *arguments).launched) == 1


def test_what_is_no_tensor_is_refused() -> None:
    with pytest.raises(InputError, match=r"example input 1 is int; expected a torch\.Tensor"):
        trace(lambda x, n: x * n, R(4), 3)  # type: ignore[arg-type]  # the mistake under test


def test_strided_inputs_are_read_where_they_lie() -> None:
    x = R(8, 6).t()
    traced = trace(lambda x: x.softmax(-1), x)
    assert traced.arguments[0].strides == (1, 6)
    torch.testing.assert_close(computed(traced, (x,))[0], x.double().softmax(-1))
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    torch.testing.assert_close(kernel(x), x.softmax(-1))
    # Another layout than the example's is copied, not misread.
    torch.testing.assert_close(kernel(x.contiguous()), x.softmax(-1))


def test_results_that_are_views_are_views_of_what_is_computed_once() -> None:
    x = R(4, 6)
    traced = trace(lambda x: ((x * 2).t(), (x * 2)[1:3]), x)
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    turned, cut = kernel(x)
    assert turned.stride() == (1, 6)
    torch.testing.assert_close(turned, (x * 2).t())
    torch.testing.assert_close(cut, (x * 2)[1:3])


def test_tensors_without_elements_go_through() -> None:
    x = R(4, 6)
    traced = trace(lambda x: (x[:0] * 2, x + 1), x)
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    empty, more = kernel(x)
    assert empty.shape == (0, 6)
    torch.testing.assert_close(more, x + 1)


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1e4, 1e17])
def test_softmax_and_variance_are_stable_at_any_magnitude(scale: float) -> None:
    x = R(5, 64) * scale
    for function in (lambda x: x.softmax(-1), lambda x: x.logsumexp(-1), lambda x: F.layer_norm(x + scale, (64,))):
        traced = trace(function, x)
        kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
        torch.testing.assert_close(kernel(x), function(x), rtol=1e-4, atol=1e-4)


def test_rows_that_are_masked_throughout_are_what_pytorch_makes_of_them() -> None:
    x = R(4, 8)
    x[1] = -math.inf
    x[2, :5] = -math.inf
    for function in (lambda x: x.softmax(-1), lambda x: x.amax(-1), lambda x: x.logsumexp(-1)):
        traced = trace(function, x)
        for seed in range(3):
            kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target(), seed))
            torch.testing.assert_close(kernel(x), function(x), equal_nan=True)


def test_the_cut_is_where_the_fewest_bytes_are() -> None:
    """The narrow tensor between two products is stored, not the wide ones beside it."""

    def function(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return F.relu(x @ a) @ b

    # Too many columns for one kernel to compute the narrow tensor again for each tile of them.
    traced = trace(function, torch.empty(2048, 4096), torch.empty(4096, 128), torch.empty(128, 16384))
    assert [value.shape for value in traced.made] == [(2048, 128), (2048, 16384)]


def test_what_two_kernels_need_and_is_dear_is_computed_once() -> None:
    def function(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = x @ w
        return y.exp(), y.sum(0)

    traced = trace(function, torch.empty(2048, 2048), torch.empty(2048, 2048))
    products = [s for s in traced.steps if s.assembled and any(t.is_contraction for t in s.assembled.workload.stages)]
    assert len(products) == 1


def test_rounding_points_are_those_of_eager() -> None:
    x, w = R(64, 64).bfloat16(), R(64, 64).bfloat16()
    for function in (lambda x, w: (x * w) * w, lambda x, w: F.silu(x) * w + x, lambda x, w: (x + w).softmax(-1)):
        traced = trace(function, x, w)
        kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
        different = (kernel(x, w) != function(x, w)).float().mean()
        # exp and division may differ in the last place of float32, which seldom reaches bfloat16.
        assert different < 0.01


def test_kernels_are_forward_only_unless_traced_with_the_gradient() -> None:
    x = R(4, 8).requires_grad_()
    traced = trace(lambda x: x.exp(), x)
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    with pytest.raises(InputError, match="requires a gradient"):
        kernel(x)
    with torch.no_grad():
        torch.testing.assert_close(kernel(x), x.exp())


def test_parameters_of_a_module_are_constants_and_no_gradient_is_lost_in_silence() -> None:
    module, x = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.GELU()), R(4, 8)
    traced = trace(module, x)
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    with torch.no_grad():
        torch.testing.assert_close(kernel(x), module(x), rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError, match="which a gradient is wanted of"):
        kernel(x)


@pytest.mark.parametrize("name", ["gelu", "softmax0", "ln", "rms", "ce_mean", "linear", "embed_ln", "mse", "acts"])
def test_gradients_are_those_of_pytorch(name: str) -> None:
    function, *given = CASES[name]
    inputs = [x.clone().requires_grad_(x.is_floating_point()) for x in given]
    # The gradient of a table is a sum of rows at indices that are data, which is left to PyTorch.
    traced = trace(function, *inputs, backward=True, allow_fallback=name == "embed_ln").for_target(cpu_target())
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    made, wanted = as_tuple(kernel(*inputs)), as_tuple(function(*inputs))
    weights = [torch.randn_like(w) for w in wanted]
    differentiable = [x for x in inputs if x.requires_grad]
    got = torch.autograd.grad(made, differentiable, weights)
    want = torch.autograd.grad(wanted, differentiable, weights)
    for a, b in zip((*made, *got), (*wanted, *want), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_gradients_belong_to_the_results_that_have_one() -> None:
    a, b = R(4, 5).requires_grad_(), R(4, 5)
    for function in (lambda a, b: (b * 2, a * b), lambda a, b: (a.argmax(-1), a * a), lambda a, b: (a, a.t(), a * b)):
        traced = trace(function, a, b, backward=True)
        kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
        made, wanted = kernel(a, b), function(a, b)
        assert [m.requires_grad for m in made] == [w.requires_grad for w in wanted]
        weights = [torch.randn_like(w) for w in wanted if w.requires_grad]
        (got,) = torch.autograd.grad([m for m in made if m.requires_grad], [a], weights)
        (want,) = torch.autograd.grad([w for w in wanted if w.requires_grad], [a], weights)
        torch.testing.assert_close(got, want)


def test_a_gradient_that_was_not_traced_is_refused() -> None:
    x, w = R(4, 8).requires_grad_(), R(8)
    traced = trace(lambda x, w: x * w, x, w, backward=True)
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    with pytest.raises(InputError, match="w requires a gradient, and was traced without"):
        kernel(x, w.requires_grad_())
    with pytest.raises(InputError, match="no example input requires a gradient"):
        trace(lambda x: x * 2, R(4), backward=True)


def test_a_dynamic_function_is_right_at_every_size() -> None:
    def function(x: Tensor, w: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
        return F.gelu(F.layer_norm(x @ w, (16,))) + r, x.amax(0)

    w = R(8, 16)
    whole = trace(function, R(4, 8), w, R(4, 16), dynamic={"x": 0, "r": 0}, sizes=(1, 40), points=(1, 8, 40))
    traced = whole.for_target(cpu_target())
    kernel = loaded(traced, untuned_kernels(traced.workloads, cpu_target()))
    for size in (1, 2, 8, 17, 40):
        x, r = R(size, 8), R(size, 16)
        for got, want in zip(kernel(x, w, r), function(x, w, r), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match="size 41; expected one from 1 to 40"):
        kernel(R(41, 8), w, R(41, 16))


def test_dynamic_arguments_that_do_not_go_together_are_refused() -> None:
    x = R(4, 8)
    with pytest.raises(InputError, match="no argument of"):
        trace(lambda x: x * 2, x, dynamic={"y": 0}, sizes=(1, 4))
    with pytest.raises(InputError, match="has no dimension 2"):
        trace(lambda x: x * 2, x, dynamic={"x": 2}, sizes=(1, 4))
    with pytest.raises(InputError, match="needs sizes"):
        trace(lambda x: x * 2, x, dynamic={"x": 0})  # type: ignore[call-overload]  # the mistake under test
    with pytest.raises(InputError, match="1 <= least"):
        trace(lambda x: x * 2, x, dynamic={"x": 0}, sizes=(0, 4))


def test_a_traced_function_is_tuned_replayed_and_called(tmp_path: Any) -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        return F.relu(x @ w).softmax(-1)

    x, w, log = R(16, 8), R(8, 16), tmp_path / "log.jsonl"
    traced = trace(function, x, w)
    result = autosched.tune(traced, target="cpu", trials=2, log=log)
    assert len(result.results) == len(result.traced.workloads) == 2
    torch.testing.assert_close(result.kernel(x, w), function(x, w))
    replayed = autosched.replay(traced, target="cpu", log=log)
    torch.testing.assert_close(replayed(x, w), function(x, w))
    again = trace(function, x, w)
    assert isinstance(again, TracedFunction)
    assert [w.key for w in again.workloads] == [w.key for w in traced.workloads]
    assert str(result).startswith("function(x[16, 8] float32, w[8, 16] float32)")
