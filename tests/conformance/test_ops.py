"""Every operator of search_spaces/ops, found by listing the folder."""

from __future__ import annotations

import json
import pkgutil
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from autosched.checking import reference
from autosched.checking.random_inputs import random_inputs
from search_spaces import Workload, ops

# Arguments for every operator: odd sizes first, then one that fills whole tiles.
ARGUMENTS: dict[str, tuple[dict[str, str], ...]] = {
    "block_sparse_matmul": (
        {"m": "12", "n": "13", "k": "20", "blocks": "7", "block": "4", "dtype": "float32"},
        {"m": "32", "n": "16", "k": "64", "blocks": "100", "block": "1", "dtype": "float32"},
    ),
    "conv": (
        {"n": "2", "c": "6", "size": "9x7", "k": "4", "kernel": "3x2", "stride": "2x1", "padding": "1x0", "groups": "2"}
        | {"epilogue": "bn_hardswish_residual", "layout": "contiguous"},
        {"n": "1", "c": "16", "size": "20", "k": "8", "kernel": "5", "padding": "same", "dilation": "2"},
    ),
    "gelu_scale": ({"elements": "1003"}, {"elements": "2048", "scale": "0.5"}),
    "grouped_matmul": (
        {"groups": "5", "m": "37", "n": "23", "k": "19", "dtype": "float32", "layout": "nt"},
        {"groups": "4", "m": "16", "n": "32", "k": "64", "dtype": "float32", "layout": "tn", "ragged": "k"},
    ),
    "layernorm": ({"rows": "7", "columns": "130"}, {"rows": "16", "columns": "256"}),
    "matmul": (
        {"m": "37", "n": "50", "k": "65", "epilogue": "bias_gelu_residual_scale"},
        {"m": "64", "n": "32", "k": "128", "layout": "tt", "batch": "2"},
    ),
    "pointwise": (
        {"rows": "13", "columns": "101", "chain": "bias_silu_gate_relu"},
        {"rows": "8", "columns": "64", "chain": "gelutanh"},
    ),
    "rmsnorm": ({"rows": "5", "columns": "77"}, {"rows": "32", "columns": "128"}),
    "row_sum": ({"rows": "11", "columns": "3001"}, {"rows": "4", "columns": "1024"}),
    "segment_sum": (
        {"rows": "101", "columns": "7", "segments": "6", "index_dtype": "int32"},
        {"rows": "64", "columns": "32", "segments": "1", "index_dtype": "int32"},
    ),
    "softmax": ({"rows": "9", "columns": "301"}, {"rows": "16", "columns": "64"}),
    "varlen_attention": (
        {"rows": "29", "heads": "3", "size": "5", "sequences": "4", "dtype": "float32", "causal": "yes"},
        {"rows": "64", "heads": "2", "size": "16", "sequences": "2", "dtype": "float32"},
    ),
}
# What each of these must move: elements of 4 bytes of the inputs and of the output, counted by hand.
ELEMENTS: dict[str, tuple[int, ...]] = {
    "block_sparse_matmul": (7 * 16 + 4 + 7 + 20 * 13 + 12 * 13, 100 + 33 + 100 + 64 * 16 + 32 * 16),
    "conv": (2 * 6 * 63 + 4 * 3 * 6 + 4 + 4 + 2 * (2 * 4 * 30), 16 * 20 + 8 * 16 * 5 + 8 * 20),
    "gelu_scale": (1003 + 1003, 2048 + 2048),
    "grouped_matmul": (37 * 19 + 5 * 19 * 23 + 5 + 37 * 23, 16 * 64 + 64 * 32 + 4 + 4 * 16 * 32),
    "layernorm": (7 * 130 + 2 * 130 + 7 * 130, 16 * 256 + 2 * 256 + 16 * 256),
    "matmul": (37 * 65 + 65 * 50 + 50 + 37 * 50 + 37 * 50, 2 * (64 * 128 + 128 * 32 + 64 * 32)),
    "pointwise": (13 * 101 + 101 + 13 * 101 + 13 * 101, 8 * 64 + 8 * 64),
    "rmsnorm": (5 * 77 + 77 + 5 * 77, 32 * 128 + 128 + 32 * 128),
    "row_sum": (11 * 3001 + 11, 4 * 1024 + 4),
    "segment_sum": (101 * 7 + 7 + 6 * 7, 64 * 32 + 2 + 32),
    "softmax": (9 * 301 + 9 * 301, 16 * 64 + 16 * 64),
    "varlen_attention": (4 * 29 * 3 * 5 + 5, 4 * 64 * 2 * 16 + 3),
}
CASES = [(name, number) for name in ARGUMENTS for number in range(len(ARGUMENTS[name]))]


def workload(name: str, number: int) -> Workload:
    return ops.construct(name, ARGUMENTS[name][number])


def in_pytorch(name: str, w: Workload, x: list[torch.Tensor]) -> torch.Tensor:
    """The operator as PyTorch has it, written without looking at the workload's stages."""
    given = dict(w.arguments)
    match name:
        case "gelu_scale":
            return F.gelu(x[0]) * given["scale"]
        case "layernorm":
            return F.layer_norm(x[0], x[0].shape[-1:], x[1], x[2], given["eps"])
        case "rmsnorm":
            return F.rms_norm(x[0], x[0].shape[-1:], x[1], given["eps"])
        case "softmax":
            return torch.softmax(x[0], -1)
        case "row_sum":
            return x[0].sum(-1)
        case "conv" if "epilogue" in given:
            made = F.conv2d(x[0], x[1], stride=(2, 1), padding=(1, 0), groups=2)
            normed = made * x[2].view(-1, 1, 1) + x[3].view(-1, 1, 1)
            return (F.hardswish(normed) + x[4]).view(2, 2, 2, 5, 6)
        case "conv":
            return F.conv1d(x[0], x[1], padding="same", dilation=2)
        case "pointwise" if given["chain"] == "gelutanh":
            return F.gelu(x[0], approximate="tanh")
        case "pointwise":
            return F.relu(F.silu(x[0] + x[1]) * x[2])
        case "varlen_attention":
            # Rows before the first sequence are one, too.
            cuts = [slice(a, b) for a, b in pairwise([0, *x[3].tolist()]) if a < b]
            heads = [[t[cut].transpose(0, 1) for t in x[:3]] for cut in cuts]
            return torch.cat(
                [F.scaled_dot_product_attention(*each, is_causal=bool(given["causal"])) for each in heads], 1
            ).transpose(0, 1)
        case "segment_sum":
            return torch.stack([x[0][a:b].sum(0) for a, b in pairwise(x[1].tolist())])
        case "grouped_matmul" if given["ragged"] == "k":
            cuts = [slice(a, b) for a, b in pairwise([0, *x[2].tolist()])]
            return torch.stack([x[0][cut].mT @ x[1][cut] for cut in cuts])
        case "grouped_matmul":
            cuts = [slice(a, b) for a, b in pairwise([0, *x[2].tolist()])]
            return torch.cat([x[0][cut] @ matrix.mT for cut, matrix in zip(cuts, x[1], strict=True)])
        case "block_sparse_matmul":
            sparse = torch.zeros(given["m"], given["k"], dtype=x[0].dtype)
            size = given["block"]
            for row, (a, b) in enumerate(pairwise(x[1].tolist())):
                for block, column in zip(x[0][a:b], x[2][a:b].tolist(), strict=True):
                    sparse[row * size : (row + 1) * size, column * size : (column + 1) * size] += block
            return (sparse @ x[3]).view(-1, size, given["n"])
        case "matmul":
            a = x[0].mT if str(given["layout"])[0] == "t" else x[0]
            b = x[1].mT if str(given["layout"])[1] == "t" else x[1]
            return a @ b if not given["epilogue"] else (F.gelu(a @ b + x[2]) + x[3]) * given["scale"]
    raise AssertionError(f"no PyTorch form of {name}; add one")


def test_every_module_is_a_constructor_with_cases_here() -> None:
    modules = {m.name for m in pkgutil.iter_modules(ops.__path__)}
    assert modules == set(ops.CONSTRUCTORS) == set(ARGUMENTS)


@pytest.mark.parametrize(("name", "number"), CASES)
def test_the_expression_means_what_pytorch_computes(name: str, number: int) -> None:
    w = workload(name, number)
    inputs = [x.double() if x.is_floating_point() else x for x in random_inputs(w, seed=1)]
    torch.testing.assert_close(*reference.evaluate(w, inputs), in_pytorch(name, w, inputs), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "number"), CASES)
def test_a_workload_survives_json(name: str, number: int) -> None:
    w = workload(name, number)
    again = Workload.from_json(json.loads(json.dumps(w.to_json())))
    assert again == w
    assert again.key == w.key
    assert again.arguments == w.arguments


@pytest.mark.parametrize(("name", "number"), CASES)
def test_traffic_is_every_input_once_and_the_output_once(name: str, number: int) -> None:
    assert workload(name, number).min_bytes == 4 * ELEMENTS[name][number]


@pytest.mark.parametrize(
    ("name", "number", "flops"),
    [("matmul", 1, 2 * (2 * 64 * 32 * 128)), ("row_sum", 0, 11 * 3001), ("row_sum", 1, 4 * 1024)],
)
def test_work_is_that_of_every_product_and_fold(name: str, number: int, flops: int) -> None:
    assert workload(name, number).flops == flops
