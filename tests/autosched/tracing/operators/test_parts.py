"""Functions that put parts together, take them apart and move them: one kernel each, with the elements that eager has.

Every kernel is machine code of this CPU, from any legal schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from autosched import TracedFunction, trace
from autosched.machine.devices import cpu_target
from autosched.tracing import loaded
from autosched.tracing.values.positions import affine_of
from autosched.tracing.values.templates import filled
from autosched.tracing.values.views import Permutation, Reshape, Slicing
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index
from search_spaces.workloads.expressions.expression import Access, Integer, Literal, Position
from untuned import untuned_kernels

X = torch.linspace(-3, 4, 2 * 3 * 6 * 8).view(2, 3, 6, 8)
X[0, 0, 0, :3] = torch.tensor([math.nan, math.inf, -math.inf])
X[1, 2, 5, 7] = math.nan
Y = torch.linspace(5, 9, 2 * 2 * 6 * 8).view(2, 2, 6, 8)
INTEGERS = torch.arange(-12, 12).view(4, 6) * 2**40
TRUTHS = torch.arange(24).view(4, 6) % 3 == 0
HALVES = torch.linspace(-4, 4, 4 * 16, dtype=torch.bfloat16).view(4, 16)
ANGLES = torch.linspace(0, 1, 4 * 16, dtype=torch.bfloat16).view(4, 16)


def circular(x: Tensor) -> Tensor:
    return F.pad(x, (1, 2, 2, 1), mode="circular")


def band(x: Tensor) -> Tensor:
    rows, columns = torch.arange(x.shape[-2]), torch.arange(x.shape[-1])
    return x.masked_fill((rows[:, None] - columns[None]).abs() > 1, 7.0)


def assigned(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, 1:3] = y[:, :2] * 2
    return y


def blur(x: Tensor) -> Tensor:
    x = F.pad(x, (1, 1, 1, 1))
    return (x[..., :-2, 1:-1] + x[..., 2:, 1:-1] + x[..., 1:-1, :-2] + x[..., 1:-1, 2:]) * 0.25


def rope(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return x * c + torch.cat((-b, a), -1) * s


def interleaved(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    a, b = x[..., ::2], x[..., 1::2]
    c, s = c[..., ::2], s[..., ::2]
    return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)


def gated(x: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return F.silu(a) * b


def crossed(x: Tensor, y: Tensor) -> Tensor:
    """Sums of products of every second element: of these as they are, and of what is computed of them."""
    return (x[..., 1::2] * y[..., ::2]).sum(0) + (-x[..., ::2] * y[..., 1::2]).sum(0)


CASES: dict[str, tuple[Callable[..., Any], *tuple[Tensor, ...]]] = {
    "concatenated": (lambda x, y: torch.relu(torch.cat((x, y, x[:, 2:]), 1)), X, Y),
    "concatenated_first": (lambda x, y: torch.cat((x[:, 0], y[:, 0])), X, Y),
    "concatenated_of_two_types": (lambda x, i: torch.cat((x, i), 0), HALVES[:, :6], INTEGERS),
    "concatenated_with_nothing": (lambda x: torch.cat((x[:, :0], x, x[:, 3:]), 1), INTEGERS),
    "concatenated_as_computed": (lambda x, y: torch.cat((x.exp(), y.sin()), 1).sqrt(), X, Y),
    "stacked": (lambda x: torch.stack((x, x + 1, x * 2)), INTEGERS),
    "stacked_last": (lambda x: torch.stack((x, ~x), -1), TRUTHS),
    "chunk_of_a_concatenation": (lambda x, y: torch.cat((x, y), 1).split([4, 1], 1)[0] * 2, X, Y),
    "padded": (lambda x: F.pad(x, (1, 2, -1, 1), value=3.0), X),
    "padded_by_what_is_no_number": (lambda x: F.pad(x, (1, 2), value=math.nan), X),
    "padded_integers": (lambda x: F.pad(x, (1, 2, 0, 1), value=-7), INTEGERS),
    "padded_truths": (lambda x: F.pad(x, (0, 2, 3, 0), value=True), TRUTHS),
    "padded_by_minus_infinity": (lambda x: F.pad(x, (2, 2), value=-math.inf), HALVES),
    "padded_as_computed": (lambda x: F.pad(x.exp(), (1, 2, 1, 1), value=3.0).sqrt(), X),
    "padded_twice": (lambda x: F.pad(F.pad(x, (1, 1), value=1.0), (2, 0, 1, 0), value=2.0), X),
    "padded_size_1": (lambda x: F.pad(x[:, :1, :, :1], (1, 1, 0, 0, 2, 0)), X),
    "padded_away": (lambda x: F.pad(x, (-7, 3)), X),
    "padded_and_summed": (lambda x: F.pad(x, (1, 1), value=1.0).sum(-1), Y),
    "reflected": (lambda x: F.pad(x, (3, 2, 1, 4), mode="reflect"), X),
    "replicated": (lambda x: F.pad(x, (3, 2, 1, -1), mode="replicate"), X),
    "replicated_beyond_all": (lambda x: F.pad(x, (-8, 3, 4, -6), mode="replicate"), X),
    "circular": (circular, X),
    "flipped": (lambda x: x.flip(1, 3), X),
    "flipped_integers": (lambda x: x.flip(0), INTEGERS),
    "turned": (lambda x: torch.rot90(x, 1, (2, 3)), X),
    "rolled": (lambda x: x.roll((1, -2), (2, 3)), X),
    "rolled_as_a_line": (lambda x: x.roll(5), INTEGERS),
    "every_other": (lambda x: torch.cat((x[..., ::2], x[..., 1::3]), -1), X),
    "differences": (lambda x: x.diff(dim=-1) * x[..., 1:].flip(-1), Y),
    "blurred": (blur, Y),
    "pixels_shuffled": (lambda x: F.pixel_shuffle(x, 2).relu(), Y.view(1, 4, 6, 8)),
    "pixels_unshuffled": (lambda x: F.pixel_unshuffle(x, 2).relu(), X),
    "enlarged": (lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), X),
    "enlarged_by_more_than_thrice": (lambda x: F.interpolate(x[..., :2, :4], scale_factor=(3.2, 2.1)), X),
    "windows_that_overlap": (lambda x: x.unfold(2, 3, 1) * 1, X),
    "windows_as_columns": (lambda x: F.unfold(x, 3, padding=1), X),
    "looked_up_by_positions": (lambda x: x[:, :, torch.arange(6).flip(0), 1:], X),
    "lower_triangle": (lambda x: x.tril(1), X),
    "band": (band, X),
    "assigned": (assigned, X),
    "one_selected": (lambda x: torch.select_scatter(x, x[:, 0] * 2, 1, 2), X),
    "rotated_positions": (rope, HALVES, ANGLES, ANGLES.flip(0)),
    "rotated_pairs": (interleaved, HALVES, ANGLES, ANGLES),
    "gated_halves": (gated, HALVES),
    "largest_of_windows": (lambda x: F.max_pool2d(x, 3, 2, 1), X),
    "largest_of_windows_apart": (lambda x: F.max_pool2d(x, 2, 1, 1, 2, ceil_mode=True), X),
    "largest_of_windows_beyond": (lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True).relu(), X),
    "largest_integers_of_windows": (lambda x: F.max_pool2d(x, (1, 2)), INTEGERS.view(1, 4, 6)),
    "largest_in_a_volume": (lambda x: F.max_pool3d(x, (2, 3, 3), 1, 1), X),
    "largest_of_what_is_computed": (lambda x: F.max_pool2d(x.exp(), 3, 1, 1), X),
    "means_of_windows": (lambda x: F.avg_pool2d(x, 3, 2, 1), Y),
    "means_of_what_is_there": (lambda x: F.avg_pool2d(x, 3, 2, 1, True, False), Y),
    "means_beyond": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), Y),
    "means_of_a_line": (lambda x: F.avg_pool1d(x, 2, 2), HALVES),
    "means_of_another_count": (lambda x: F.avg_pool2d(x, 2, divisor_override=3), Y),
    "means_of_equal_parts": (lambda x: F.adaptive_avg_pool2d(x, (3, 4)), Y),
    "products_of_parts_in_turn": (crossed, Y[:, 0], Y[:, 1] * 0.5),
    "maxima_of_equal_parts": (lambda x: F.adaptive_max_pool2d(x, (3, 4)), Y),
    "means_of_uneven_parts": (lambda x: F.adaptive_avg_pool2d(x.exp(), (4, 8)), Y),
    "means_of_more_parts_than_elements": (lambda x: F.adaptive_avg_pool2d(x, (9, 7)), HALVES.view(1, 8, 8)),
    "means_of_an_uneven_volume": (lambda x: F.adaptive_avg_pool3d(x, (2, 4, 5)), X[:1, :, :3, :7]),
    "means_of_an_uneven_line": (lambda x: F.adaptive_avg_pool1d(x, 5), HALVES),
    "maxima_of_uneven_parts": (lambda x: F.adaptive_max_pool2d(x, (4, 3)), X),
    "places_of_uneven_parts": (lambda x: F.adaptive_max_pool2d(x, (4, 8), return_indices=True)[1], X.round()),
    "maxima_of_an_uneven_line": (lambda x: F.adaptive_max_pool1d(x, 5), HALVES),
    "made_smaller_by_areas": (lambda x: F.interpolate(x, (5, 3), mode="area"), Y),
}


def run(function: Callable[..., Any], *inputs: Tensor) -> tuple[TracedFunction, Any]:
    traced = trace(function, *inputs).for_target(cpu_target())
    return traced, loaded(traced, untuned_kernels(traced.workloads, cpu_target()))(*inputs)


@pytest.mark.parametrize("name", CASES)
def test_parts_are_one_kernel_with_the_elements_of_eager(name: str) -> None:
    function, *inputs = CASES[name]
    traced, made = run(function, *inputs)
    wanted = function(*inputs)
    assert len(traced.steps) == 1, str(traced)
    assert traced.steps[0].assembled is not None
    tolerance = {torch.float32: 1e-6, torch.bfloat16: 2.0**-7}.get(wanted.dtype, 0.0)
    torch.testing.assert_close(made, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("x", [X, torch.where(X > 0, X, -math.inf), INTEGERS.view(1, 4, 6)], ids=["nan", "inf", "int"])
def test_places_of_the_largest_elements_are_those_of_eager(x: Tensor) -> None:
    _, (top, places) = run(lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True), x)
    wanted = F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True)
    torch.testing.assert_close((top, places), tuple(wanted), rtol=0, atol=0, equal_nan=True)


def test_padding_keeps_the_sign_of_zero() -> None:
    _, made = run(lambda x: F.pad(x, (1, 1), value=-0.0), Y)
    assert made[..., 0].signbit().all()
    assert made[..., -1].signbit().all()
    assert not made[..., 1:-1].signbit().any()


def test_a_part_of_what_was_put_together_reads_that_part_alone() -> None:
    traced = trace(lambda x, y: torch.cat((x, y), 1).chunk(5, 1)[3] + 1, X, Y)
    (workload,) = traced.workloads
    assert [t.shape for t in workload.scheduled.inputs] == [(2, 48)]


def test_shifted_reads_of_a_tensor_are_one_input() -> None:
    (workload,) = trace(rope, HALVES, ANGLES, ANGLES.flip(0)).workloads
    assert len(workload.inputs) == 3
    (workload,) = trace(blur, Y).workloads
    assert [t.shape for t in workload.scheduled.inputs] == [(4, 6, 8)]


@pytest.mark.parametrize(
    "function",
    [lambda a: torch.cat((a @ a.T, a @ a.T * 2), 1), lambda a: torch.cat((a, a.sum(-1, keepdim=True)), -1)],
    ids=["products", "sums of rows"],
)
def test_what_is_no_kernel_together_is_put_together_from_memory(function: Callable[[Tensor], Tensor]) -> None:
    a = torch.linspace(-1, 1, 48).view(6, 8)
    traced, made = run(function, a)
    assert len(traced.steps) > 1
    torch.testing.assert_close(made, function(a))


def up(x: Tensor, w: Tensor) -> Tensor:
    return F.conv_transpose2d(x, w, stride=2)


IMAGE, TAPS, POINTS = (torch.linspace(-1, 2, math.prod(s)).view(s) for s in ((2, 4, 8, 8), (4, 4, 3, 3), (8, 4, 1, 1)))
# name: the function, its arguments, and its number of kernels, each of which computes parts of the one concatenation.
IN_PLACE: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...], int]] = {
    "branches": (
        lambda x, w, v: torch.cat((F.conv2d(x, w, padding=1), F.conv2d(x, v).relu()), 1), (IMAGE, TAPS, POINTS), 2,
    ),
    "behind the image": (lambda x, w: torch.cat((x, F.conv2d(x, w, padding=1)), 1), (IMAGE, TAPS), 2),
    "before two others": (
        lambda x, w: torch.cat((F.conv2d(x, w, padding=1), x, F.max_pool2d(x, 3, 1, 1)), 1), (IMAGE, TAPS), 2,
    ),
    "channels last": (
        lambda x, w, v: torch.cat((F.conv2d(x, w), F.conv2d(x, v)), 1).permute(0, 2, 3, 1),
        (IMAGE, torch.linspace(0, 1, 64).view(16, 4, 1, 1), POINTS), 2,
    ),
    "columns of products": (
        lambda x, y, z: torch.cat((x @ y, x @ z * 2), -1),
        (IMAGE[0, 0], IMAGE[0, 1].repeat(1, 2), IMAGE[0, 2].repeat(1, 2)), 2,
    ),
    "a line": (
        lambda x, w, v: torch.cat((F.conv1d(x, w, padding=1), F.conv1d(x, v)), 1),
        (IMAGE[:, :, 0], TAPS[..., 0] + 1, POINTS[..., 0]), 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_PLACE)
def test_products_store_their_parts_of_a_concatenation_in_its_memory(name: str) -> None:
    function, given, kernels = IN_PLACE[name]
    traced, made = run(function, *given)
    assert len(traced.launched) == kernels, str(traced)
    assert sum(t.elements for w in traced.launched for t in w.outputs) == made.numel()
    expected = function(*given)
    torch.testing.assert_close(made, expected)
    assert made.stride() == expected.stride()


def test_a_skip_connection_is_stored_by_the_kernel_that_computes_it() -> None:
    def block(x: Tensor, w: Tensor, v: Tensor, u: Tensor) -> Tensor:
        skip = F.conv2d(x, w, padding=1).relu()
        return F.conv2d(torch.cat((skip, up(F.max_pool2d(skip, 2), v)), 1), u)

    given = IMAGE, TAPS, TAPS[..., :2, :2], POINTS.view(4, 8, 1, 1)
    traced, made = run(block, *given)
    # The convolutions, and what is pooled.
    assert len(traced.launched) == 4, str(traced)
    torch.testing.assert_close(made, block(*given))


def test_parts_that_are_returned_too_have_memory_of_their_own() -> None:
    def function(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        made = F.conv2d(x, w, padding=1)
        return torch.cat((made, F.conv2d(x, w[:, :, :1, :1])), 1), made

    _, (whole, part) = run(function, IMAGE, TAPS)
    torch.testing.assert_close((whole, part), function(IMAGE, TAPS))
    assert part.is_contiguous()
    assert part.untyped_storage().data_ptr() != whole.untyped_storage().data_ptr()


def test_a_whole_that_a_product_reads_may_be_computed_there_if_it_has_other_parts() -> None:
    x, w = IMAGE[0, 0], IMAGE[1, 0]
    traced = trace(lambda x, w, v: torch.cat((x, x @ w), -1) @ v, x, w, IMAGE[1].view(16, 16))
    assert all(step.assembled for step in traced.steps), str(traced)


def test_parts_that_read_nothing_are_stored_with_the_others() -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        return torch.cat((torch.zeros(2, 4, 8, 8), F.conv2d(x, w, padding=1)), 1)

    _, made = run(function, IMAGE, TAPS)
    torch.testing.assert_close(made, function(IMAGE, TAPS))


def test_parts_whose_addresses_kernels_do_not_take_are_copied() -> None:
    given = IMAGE[..., :7, :7].contiguous(), TAPS[:3], POINTS
    function = IN_PLACE["branches"][0]
    traced, made = run(function, *given)
    assert len(traced.launched) == 3, str(traced)
    torch.testing.assert_close(made, function(*given))


@pytest.mark.parametrize("kernels", [(64, 1), (65, 3), (130, 4)])
def test_many_parts_are_put_together_in_groups_that_are_alike(kernels: tuple[int, int]) -> None:
    parts, workloads = kernels
    given = [x.contiguous() for x in torch.linspace(-1, 1, 4 * 3 * parts).view(parts, 4, 3)]
    traced, made = run(lambda *given: torch.cat([x * 2 for x in given], 1), *given)
    assert len(traced.workloads) <= workloads
    torch.testing.assert_close(made, torch.cat(given, 1) * 2, rtol=0, atol=0)


def test_steps_of_a_long_recurrence_are_put_together() -> None:
    def steps(x: Tensor, weight: Tensor) -> Tensor:
        hidden, made = x[0], []
        for step in x.unbind(0):
            hidden = torch.tanh(hidden @ weight + step)
            made.append(hidden)
        return torch.stack(made)

    x, weight = torch.linspace(-1, 1, 70 * 4 * 8).view(70, 4, 8), torch.linspace(-0.5, 0.5, 64).view(8, 8)
    _, made = run(steps, x, weight)
    torch.testing.assert_close(made, steps(x, weight))


@pytest.mark.parametrize(("function", "stored"), [(torch.exp, 0), (torch.lgamma, 1)])
def test_what_windows_read_is_stored_where_computing_it_again_takes_longer(
    function: Callable[[Tensor], Tensor], stored: int
) -> None:
    x = torch.empty(64, 64, 112, 112, device="meta")
    assert len(trace(lambda x: F.avg_pool2d(function(x), 3, 1), x).steps) == 1 + stored


def test_gradients_of_parts_are_parts() -> None:
    def parts(x: Tensor) -> Tensor:
        a, b = x[:, :, 1:4], F.pad(x, (1, 0))[..., :8]
        return torch.cat((a * a, b), 2)

    def gradient(function: Callable[[Tensor], Tensor], weight: Tensor) -> Tensor:
        x = Y.clone().requires_grad_()
        (found,) = torch.autograd.grad((function(x) * weight).sum(), x)
        return found

    traced = trace(parts, Y.clone().requires_grad_(), backward=True)
    workloads = (*traced.forward.workloads, *traced.backward.workloads)
    kernel = loaded(traced, untuned_kernels(workloads, cpu_target()))
    assert [len(t.steps) for t in (traced.forward, traced.backward)] == [1, 1]
    weight = torch.linspace(0, 1, 2 * 2 * 9 * 8).view(2, 2, 9, 8)
    torch.testing.assert_close(gradient(kernel, weight), gradient(parts, weight))


def test_tensors_without_elements_are_left_out_or_to_pytorch() -> None:
    empty = torch.empty(2, 0)
    (workload,) = trace(lambda x, y: torch.cat((x, y), 1) + 1, empty, HALVES[:2]).workloads
    assert workload.scheduled.inputs[0].shape == (32,)
    assert not trace(lambda x: torch.cat((x, x), 1), empty).workloads
    assert not trace(lambda x: F.unfold(x, 2), torch.empty(0, 1, 5, 5)).workloads


# Values as data


def test_views_are_equal_where_they_take_the_same() -> None:
    assert Permutation((1, 0)) == Permutation((1, 0))
    assert Reshape((6,), (2, 3)) != Reshape((6,), (3, 2))
    assert len({Slicing(0, 1, 2, 3), Slicing(0, 1, 2, 3), Slicing(0, 1, -2, 3)}) == 2


def test_an_index_outside_of_a_reshaped_dimension_stays_in_it() -> None:
    at = (axis_index("a"), axis_index("b") + Affine(offset=-5), axis_index("c"))
    extents = {"a": 4, "b": 9, "c": 6}
    assert Reshape((4, 6, 1, 6), (4, 6, 6)).source_index(at, extents) == (at[0], at[1], Affine(), at[2])


def test_a_template_is_filled_with_what_cancels_nowhere() -> None:
    x, tanh = Access("x", (axis_index("i"),)), ex.call("tanh", Access("x", (axis_index("i"),)))
    sum_of_two = ex.add(Access("0", ()), Access("1", ()))
    assert filled(sum_of_two, [x, x]) == ex.add(x, x)
    assert "tanh" not in ex.to_text(filled(sum_of_two, [Literal(1.0), tanh]))


@pytest.mark.parametrize(
    ("expression", "form"),
    [
        (ex.add(ex.call("to_integer", Position(axis_index("i"))), Integer(3)), axis_index("i") + Affine(offset=3)),
        (ex.mul(Integer(2), ex.call("to_integer", Position(axis_index("i")))), Affine.of(("i", 2))),
        (ex.call("maximum", ex.call("to_integer", Position(axis_index("i"))), Integer(-1)), axis_index("i")),
        (ex.call("maximum", ex.call("to_integer", Position(axis_index("i"))), Integer(2)), None),
        (ex.call("to_integer", Access("x", (axis_index("i"),))), None),
        (ex.call("to_integer", Literal(2.0)), Affine(offset=2)),
        (ex.call("to_integer", Literal(2.5)), None),
    ],
)
def test_expressions_of_positions_are_affine_where_they_are_so_everywhere(
    expression: ex.Expression, form: Affine | None
) -> None:
    assert affine_of(expression, {"i": 8}) == form
