"""Rules give the shapes and element types that PyTorch's own shape functions give, of all types and on every device."""

from __future__ import annotations

import pytest
import torch

from autosched import InputError
from autosched.tracing.translation.translate import translate
from recorded_operators import Call, captured_call, recorded_calls

_aten = torch.ops.aten
TYPES = (torch.float16, torch.int64, torch.uint8, torch.bool)
# So many of PyTorch's operators are tried of each element type: a few seconds in all.
_TRIED = 14


def why_defective(call: Call, device: str) -> str:
    """How what a rule makes of a call differs from what PyTorch says it is, or why the rule failed; "" if all is well.

    A rule may refuse the call.
    """
    captured, names = captured_call(call, device)
    try:
        translate(captured, names, False)
    except InputError as error:
        return "" if error.__cause__ is None else f"{call[0]} on {device}: {error.__cause__!r}"
    return ""


@pytest.mark.parametrize("dtype", TYPES)
def test_rules_give_what_shape_functions_give(dtype: torch.dtype) -> None:
    calls = list(recorded_calls(dtype, samples=1, operators=_TRIED))
    assert len(calls) > _TRIED // 2
    assert not [why for call in calls for device in ("cpu", "cuda") if (why := why_defective(call, device))]


def normalised(dtype: torch.dtype, statistics: torch.dtype) -> list[Call]:
    """What no operator of PyTorch calls before it is taken apart."""
    x, (weight, bias, mean, var) = torch.ones(4, 3, 5, dtype=dtype), torch.ones(4, 3, dtype=statistics)
    functional = _aten._native_batch_norm_legit_functional.default
    return [
        (_aten._native_batch_norm_legit.no_stats, (x, weight, bias, True, 0.1, 1e-5), {}),
        (_aten._native_batch_norm_legit_no_training.default, (x, weight, bias, mean, var, 0.1, 1e-5), {}),
        (functional, (x, weight, None, mean, var, True, 0.1, 1e-5), {}),
        (functional, (x, None, bias, mean, var, False, 0.1, 1e-5), {}),
    ]


@pytest.mark.parametrize("statistics", ["same", "float32"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_statistics_are_of_the_element_types_that_pytorch_gives_them(dtype: torch.dtype, statistics: str) -> None:
    calls = normalised(dtype, dtype if statistics == "same" else torch.float32)
    assert not [why for call in calls for device in ("cpu", "cuda") if (why := why_defective(call, device))]
    for call in calls:
        captured, names = captured_call(call, "cpu")
        made = translate(captured, names, False).outputs
        (output,) = (n for n in captured.graph.nodes if n.op == "output")
        wanted = [(tuple(n.meta["val"].shape), n.meta["val"].dtype) for n in output.args[0]]
        assert [(v.shape, getattr(torch, v.dtype)) for v in made] == wanted
