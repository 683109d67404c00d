"""Strict replay: only exact records answer, and a refusal says what the nearest one is of."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

import autosched
from autosched import ops
from autosched.kernels.kernel import Kernel, load_kernel
from autosched.kernels.tier import Tier, tiers_text
from autosched.machine import devices
from autosched.replaying.nearest import nearest_kernels
from autosched.replaying.replay import find_best
from search_spaces import InputError, Workload
from tuning_logs import TuningLog

OP = ops.matmul(48, 40, 56, epilogue="bias")
POINTWISE = (torch.randn(8, 16),)


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("strict") / "tuning.jsonl"
    autosched.tune(OP, "cpu", 2, strategy="random", log=path)
    autosched.tune(autosched.trace(doubled, *POINTWISE), "cpu", 2, strategy="random", log=path)
    return path


@pytest.fixture(scope="module")
def stale_log(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stale") / "stale.jsonl"
    for record in TuningLog(log):
        assert record.measurement.facts is not None
        facts = dataclasses.replace(record.measurement.facts, source="0" * 16)
        measurement = dataclasses.replace(record.measurement, facts=facts)
        versions = tuple((name, "0.1" if name == "llvmlite" else v) for name, v in record.provenance.versions)
        origin = dataclasses.replace(record.provenance, generator="0ld", versions=versions)
        TuningLog(path).append(dataclasses.replace(record, measurement=measurement, provenance=origin))
    return path


def test_an_exact_record_answers_a_strict_replay(log: Path) -> None:
    kernel = autosched.replay(OP, "cpu", log=log, strict=True)
    assert kernel.tier is Tier.EXACT
    assert kernel.called_as(dataclasses.replace(OP, name="mine")).tier is Tier.EXACT


@pytest.mark.parametrize(
    ("wanted", "differs"),
    [
        (ops.matmul(48, 40, 57, epilogue="bias"), r"differs in k: 56, wanted 57$"),
        (ops.matmul(48, 40, 56, epilogue="bias", dtype="bfloat16"), r"dtype: float32, wanted bfloat16"),
        (ops.matmul(48, 40, 56, epilogue="bias", layout="nt"), r"differs in layout: nn, wanted nt$"),
        (ops.softmax(48, 40), r"no record is of such an operator, the first is of matmul m=48"),
    ],
    ids=["shape", "dtype", "layout", "operator"],
)
def test_a_refusal_names_the_members_that_differ_from_the_nearest_record(
    wanted: Workload, differs: str, log: Path
) -> None:
    with pytest.raises(InputError, match=differs):
        autosched.replay(wanted, "cpu", log=log, strict=True)


def test_a_refusal_names_the_policy_and_the_device(log: Path) -> None:
    with pytest.raises(InputError, match=r"differs in timing: cold caches, wanted hot caches$"):
        autosched.replay(OP, "cpu", log=log, policy="hot", strict=True)
    target = dataclasses.replace(devices.resolve("cpu"), threads=2, num_sms=2)
    with pytest.raises(InputError, match=r"differs in threads: 1, wanted 2$"):
        find_best(OP, target, [log], strict=True)


def test_a_stale_record_is_refused_with_the_versions_that_changed(stale_log: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be used: this version makes another kernel.*") as refused:
        autosched.replay(OP, "cpu", log=stale_log, strict=True)
    assert "is stale, and differs in generator: 0ld, wanted" in str(refused.value)
    assert "llvmlite: 0.1, wanted" in str(refused.value)
    with pytest.warns(autosched.StaleRecordWarning):
        assert autosched.replay(OP, "cpu", log=stale_log).tier is Tier.STALE


def test_the_environment_makes_every_replay_strict(stale_log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOSCHED_STRICT", "1")
    with pytest.raises(InputError, match="the nearest record"):
        autosched.replay(OP, "cpu", log=stale_log)
    with pytest.raises(InputError, match="strict refuses predictions"):
        autosched.replay(OP, "cpu", log=stale_log, predicted=True)
    with pytest.raises(InputError, match="the nearest record"):
        nearest_kernels(autosched.trace(doubled, torch.randn(8, 24)), devices.resolve("cpu"), log=stale_log)
    monkeypatch.setenv("AUTOSCHED_STRICT", "")
    with pytest.warns(autosched.StaleRecordWarning):
        autosched.replay(OP, "cpu", log=stale_log)
    monkeypatch.setenv("AUTOSCHED_STRICT", "yes")
    with pytest.raises(InputError, match="AUTOSCHED_STRICT=yes; expected 0 or 1"):
        autosched.replay(OP, "cpu", log=stale_log)


@pytest.mark.parametrize("strict", [False, True])
def test_a_misspelt_log_is_named(strict: bool, log: Path) -> None:
    with pytest.raises(InputError, match=r"no successful record .*; there is no file .*tunign\.jsonl"):
        autosched.replay(OP, "cpu", log=log.with_name("tunign.jsonl"), strict=strict)


def test_a_function_has_the_least_sure_tier_of_its_launches(log: Path) -> None:
    traced = autosched.trace(doubled, *POINTWISE)
    kernel = autosched.replay(traced, "cpu", log=log, strict=True)
    assert kernel.tiers == (Tier.EXACT,)
    other = autosched.trace(doubled, torch.randn(8, 24))
    assert nearest_kernels(other, devices.resolve("cpu"), log=log).tier is Tier.OTHER_SHAPE
    with pytest.raises(InputError, match=r"differs in shape: 128.*, wanted 192"):
        autosched.replay(other, "cpu", log=log, strict=True)


def test_strict_refuses_what_is_left_to_pytorch(log: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.special.i1(x * 2 + 1)

    traced = autosched.trace(function, *POINTWISE, allow_fallback=True)
    assert autosched.replay(traced, "cpu", log=log).tier is Tier.LIBRARY
    with pytest.raises(InputError, match=r"strict: .* left to PyTorch"):
        autosched.replay(traced, "cpu", log=log, strict=True)


def test_strict_refuses_sizes_that_were_not_tuned(log: Path) -> None:
    x = torch.randn(8, 16)
    traced = autosched.trace(doubled, x, dynamic={"x": 0}, sizes=(1, 8), points=(8,), allow_fallback=True)
    kernel = autosched.replay(traced, "cpu", log=log, strict=True)
    assert torch.equal(kernel(x), doubled(x))
    assert kernel.tier is Tier.EXACT
    with pytest.raises(InputError, match=r"of a size that was not tuned; expected one of 8"):
        kernel(x[:5])
    usual = autosched.replay(traced, "cpu", log=log)
    assert usual.at(5).tier is Tier.OTHER_SHAPE


def test_a_pickled_kernel_keeps_its_tier(log: Path) -> None:
    record = TuningLog(log).best(OP, devices.resolve("cpu"))
    assert record is not None
    load, given = load_kernel(record, OP, Tier.PREDICTED).__reduce__()
    again = load(*given)
    assert isinstance(again, Kernel)
    assert again.tier is Tier.PREDICTED


def test_tiers_are_counted_surest_first() -> None:
    assert tiers_text([Tier.STALE, Tier.EXACT, Tier.EXACT]) == "2 exact, 1 stale"
    assert tiers_text([Tier.OTHER_SHAPE]) == "other shape"
    assert Tier.least([Tier.EXACT, Tier.OTHER_SHAPE, Tier.STALE]) is Tier.OTHER_SHAPE
    assert Tier.least([]) is Tier.LIBRARY
