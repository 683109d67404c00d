"""The named convolution is PyTorch's, of the same tensors, and the product that it is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from autosched.checking import reference
from autosched.checking.random_inputs import random_inputs
from convolutions import block, convolution
from search_spaces import InputError, ops
from tuning_logs.shape_distance import shape_distance

CONVOLVE = (F.conv1d, F.conv2d, F.conv3d)
CASES: dict[str, dict[str, Any]] = {
    "1-D": {"size": 19, "kernel": 4, "stride": 3, "padding": 2},
    "2-D": {"size": (9, 7), "kernel": (3, 2), "stride": (1, 2), "padding": (0, 1), "dilation": (2, 1)},
    "3-D": {"size": (4, 5, 6), "kernel": 3, "padding": 1, "stride": 2},
    "same": {"size": (9, 7), "kernel": (4, 3), "padding": "same", "dilation": (2, 1)},
    "kernel larger than the image": {"size": (3, 2), "kernel": 5, "padding": 2},
    "one pixel": {"size": (1, 1), "kernel": 3, "padding": 1},
    "groups": {"size": (6, 5), "kernel": 3, "padding": 1, "groups": 2},
    "depthwise": {"size": (6, 5), "kernel": 3, "padding": 1, "groups": 8},
    "padding that nothing reads": {"size": (6, 6), "kernel": 1, "stride": 8, "padding": 1},
}


@pytest.mark.parametrize("layout", ["channels_last", "contiguous"])
@pytest.mark.parametrize("name", CASES)
def test_it_is_pytorchs_convolution_of_the_same_tensors(name: str, layout: str) -> None:
    given = CASES[name]
    w = ops.conv(2, 8, k=8, **given, layout=layout)
    x, weight = (t.double() for t in random_inputs(w, seed=1))
    rank = x.ndim - 2
    how = {key: value for key, value in given.items() if key not in ("size", "kernel")}
    expected = CONVOLVE[rank - 1](x, weight, **how)
    (made,) = reference.evaluate(w, [x, weight])
    torch.testing.assert_close(made.reshape(expected.shape), expected, rtol=1e-12, atol=1e-12)
    format_ = {2: torch.channels_last, 3: torch.channels_last_3d}.get(rank)
    if format_ and layout == "channels_last":
        assert x.is_contiguous(memory_format=format_)
        assert weight.is_contiguous(memory_format=format_)


@pytest.mark.parametrize("dtype", ["float16", "int8"])
@pytest.mark.parametrize(
    "given",
    [
        {"size": (9, 7), "kernel": (3, 3), "padding": 1, "batch": 2},
        {"size": (8, 8), "kernel": (3, 3), "padding": 1, "channels": 32, "filters": 64, "groups": 2},
        {"size": (8, 8), "kernel": (3, 3), "padding": 1, "channels": 16, "filters": 16, "groups": 16},
        {"size": (4, 5, 6), "kernel": (3, 3, 3), "stride": 2},
        {"size": (40,), "kernel": (5,), "dilation": 2, "padding": 2},
    ],
    ids=str,
)
def test_it_is_the_one_that_is_written_out(given: dict[str, Any], dtype: str) -> None:
    renamed = {"batch": "n", "channels": "c", "filters": "k"}
    usual = {"n": 1, "c": 16, "k": 24}
    named = usual | {renamed.get(key, key): value for key, value in given.items()}
    last = ops.conv(**named, dtype=dtype, weight_layout="filters_last")
    assert last.key == convolution(**given, dtype=dtype).key
    first = ops.conv(**named, dtype=dtype, layout="contiguous")
    assert first.key == convolution(**given, dtype=dtype, layout="nchw").key


def test_its_epilogue_is_the_block_that_is_written_out() -> None:
    written = block(convolution((9, 7), (3, 3), padding=1))
    given: dict[str, Any] = {"padding": 1, "dtype": "float16", "weight_layout": "filters_last"}
    assert ops.conv(1, 16, (9, 7), 24, 3, **given, epilogue="bias_residual_relu").key == written.key


@pytest.mark.parametrize("epilogue", ["", "bias_relu", "bn_residual_relu", "bias_silu_colscale"])
def test_a_kernel_of_one_tap_is_the_product(epilogue: str) -> None:
    one = ops.conv(2, 16, (9, 7), 24, 1, dtype="bfloat16", epilogue=epilogue)
    assert one.key == ops.matmul(2 * 9 * 7, 24, 16, "bfloat16", "nt", epilogue=epilogue).key


def test_a_layer_learns_from_its_siblings_first_and_one_of_a_pixel_from_products() -> None:
    layer = ops.conv(32, 64, (56, 56), 64, 3, padding=1, dtype="float16", epilogue="bias_relu")
    sibling = ops.conv(8, 128, (28, 28), 128, 3, padding=1, dtype="float16", epilogue="bias_relu")
    pixel = ops.conv(32, 64, (56, 56), 256, 1, dtype="float16", epilogue="bias_relu")
    product = ops.matmul(65536, 512, 64, layout="nt", dtype="float16", epilogue="bias_relu")
    assert {w.family for w in (layer, sibling, pixel, product)} == {"dot"}
    assert shape_distance(sibling, layer) < shape_distance(product, layer)
    assert shape_distance(product, pixel) < shape_distance(sibling, pixel)


def test_results_may_lie_in_another_layout_than_images() -> None:
    w = ops.conv(2, 8, (6, 5), 4, 3, epilogue="residual", layout="contiguous", out_layout="channels_last")
    x, weight, residual = w.inputs
    assert (x.strides, weight.strides) == (None, None)
    assert residual.strides == w.output_strides[0] == (4 * 3 * 4, 1, 3 * 4, 4)


def test_padding_that_no_window_reads_has_no_guard() -> None:
    assert "or 0" in str(ops.conv(1, 8, 8, 8, 3, padding="same"))
    assert "or 0" not in str(ops.conv(1, 8, 8, 8, 1, padding="same"))


def test_numbers_are_written_as_text_or_as_tuples() -> None:
    text = ops.construct("conv", {"n": "2", "c": "8", "size": "9x7", "k": "4", "kernel": "3", "padding": "1x2"})
    assert text == ops.conv(2, 8, (9, 7), 4, (3, 3), padding=[1, 2])
    assert text.label == "conv n=2 c=8 size=9x7 k=4 kernel=3x3 padding=1x2 layout=channels_last float32"
    again: dict[str, Any] = dict(text.arguments)
    assert text == ops.conv(**again)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"size": "9x"}, "size='9x'; such as 56x56"),
        ({"size": (0, 4)}, "size=(0, 4); such as 56x56, each at least 1"),
        ({"size": (2, 2, 2, 2)}, "size=2x2x2x2 has 4 dimensions; expected one to 3"),
        ({"kernel": (3, 3, 3)}, "kernel=(3, 3, 3) has 3 dimensions; expected a number, or 2 such as 3x3"),
        ({"stride": 0}, "stride=0; expected a number, or 2 such as 3x3, each at least 1"),
        ({"padding": "same", "stride": 2}, "padding=same with stride=2; expected stride 1"),
        ({"kernel": 9}, "kernel=9x9 with dilation=1 over size=7x7 with padding=0: out would have the size -1x-1"),
        ({"groups": 3}, "c=8 and k=8 in 3 groups; expected multiples"),
        ({"layout": "nchw"}, "channels_last, contiguous"),
        ({"epilogue": "rowscale"}, "unknown link 'rowscale'"),
        ({"dtype": "int16"}, "int16"),
    ],
    ids=str,
)
def test_what_is_no_convolution_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        ops.conv(**{"n": 1, "c": 8, "size": (7, 7), "k": 8, "kernel": 3, **given})
    assert said in str(caught.value)
