"""Options of the backend of torch.compile."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from autosched.torch_compile.options import Options
from autosched.torch_compile.tuning.background import BackgroundTuning
from made_up_node import Local
from search_spaces import InputError


def test_a_mode_or_options_say_what_to_do() -> None:
    assert Options.of(None, None) == Options()
    assert Options.of("max-autotune", None).tunes
    given = {"mode": "max-autotune", "trials": 3, "seconds": 5.0, "log": "a.jsonl", "strict": True}
    expected = Options("max-autotune", "a.jsonl", 3, 5.0, True, numerics="fold")
    assert Options.of(None, {**given, "numerics": "fold"}) == expected


@pytest.mark.parametrize(
    ("mode", "tunes", "graphs"),
    [
        ("default", False, False),
        ("reduce-overhead", False, True),
        ("max-autotune", True, True),
        ("max-autotune-no-cudagraphs", True, False),
    ],
)
def test_the_modes_of_torch_compile_say_what_is_tuned_and_what_is_a_cuda_graph(
    mode: str, tunes: bool, graphs: bool
) -> None:
    options = Options.of(mode, None)
    assert (options.tunes, options.graphs) == (tunes, graphs)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"trails": 3}, "unknown option of torch.compile 'trails'.*trials"),
        ({"trials": "3"}, "trials='3'; expected"),
        ({"trials": True}, "trials=True is bool; expected int or str"),
        ({"trials": 0}, "trials=0; expected"),
        ({"mode": "fastest"}, "unknown mode 'fastest'"),
        ({"numerics": "exact"}, "unknown numerics 'exact'.*eager, fold, reassociate"),
        ({"share_weights": 1}, "share_weights=1 is int; expected bool"),
        ({"log": "misspelt/log.jsonl"}, "log='misspelt/log.jsonl': there is no folder misspelt; expected one"),
        ({"log": 3}, "log=3 is int; expected str or PathLike or None"),
        ({"measurer": "auto"}, "measurer='auto'; expected a measurer"),
        ({"measurer": Local(batches=1)}, "only max-autotune and max-autotune-no-cudagraphs measure with it"),
    ],
)
def test_other_options_are_refused_with_those_that_there_are(given: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Options.of(None, given)


def test_two_modes_are_refused() -> None:
    with pytest.raises(InputError, match="mode='max-autotune' and the option mode='default'; expected one of them"):
        Options.of("max-autotune", {"mode": "default"})


def test_pytorch_finds_the_backend_by_its_name() -> None:
    (found,) = (p for p in entry_points(group="torch_dynamo_backends") if p.name == "autosched")
    assert found.value == "autosched.torch_compile.backend:autosched"


def test_a_log_that_is_not_there_is_said_where_nothing_makes_it(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    log = tmp_path / "tunign.jsonl"
    Options.of("max-autotune", {"log": log})
    Options.of(None, {"log": log, "background": BackgroundTuning()})
    assert not list(recwarn)
    with pytest.warns(UserWarning, match=r"tunign\.jsonl': there is no such file"):
        Options.of(None, {"log": log})


def test_the_environment_makes_all_of_them_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Options.of(None, {}).strict
    monkeypatch.setenv("AUTOSCHED_STRICT", "1")
    assert Options.of(None, {"strict": False}).strict
