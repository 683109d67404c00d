"""GPUs by name, however it is spelled, and what their data sheets say of each other."""

from __future__ import annotations

import dataclasses

import pytest

from autosched.backends.cuda import nvrtc
from autosched.cli.targets import target_lines
from search_spaces import InputError, Target, target_named
from search_spaces.devices.target import GPUS


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("v100", "v100"),
        ("V-100", "v100"),
        ("tesla v100", "v100"),
        ("V100 32 GB", "v100-32gb"),
        ("v100-16gb", "v100"),
        ("V100 SXM2 32GB", "v100-32gb"),
        ("Tesla V100-PCIE-32GB", "v100-pcie-32gb"),
        ("A100 80GB", "a100"),
        ("A100 40GB", "a100-40gb"),
        ("a100 pcie", "a100-pcie"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("H100 SXM", "h100"),
        ("h100-sxm5", "h100"),
        ("H100 PCIe", "h100-pcie"),
        ("RTX 2080 Ti", "rtx2080ti"),
        ("GeForce RTX 4090", "rtx4090"),
        ("rtx-5090", "rtx5090"),
        ("T 4", "t4"),
        ("nvidia l40s", "l40s"),
    ],
)
def test_a_name_is_understood_however_it_is_spelled(spelled: str, name: str) -> None:
    assert target_named(spelled).name == name


@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda gpu: gpu.name)
def test_a_gpu_goes_by_its_own_name_and_by_what_pytorch_calls_it(gpu: Target) -> None:
    assert target_named(gpu.name) is target_named(gpu.device) is target_named(gpu.device.upper()) is gpu


@pytest.mark.parametrize(
    ("unknown", "meant"), [("v200", "v100"), ("A10G", "a10"), ("H100 NVL", "h100"), ("2080ti", "rtx2080ti")]
)
def test_a_name_that_is_not_understood_is_answered_with_the_closest(unknown: str, meant: str) -> None:
    with pytest.raises(InputError, match=rf"unknown target '{unknown}'; did you mean '{meant}'\?"):
        target_named(unknown)


@pytest.mark.parametrize("unknown", ["", "gpu", "32gb", "pcie", "t400", "gh200"])
def test_what_names_no_family_is_no_gpu(unknown: str) -> None:
    with pytest.raises(InputError, match="unknown target"):
        target_named(unknown)


def test_a_text_of_many_words_is_refused_at_once() -> None:
    with pytest.raises(InputError, match="unknown target"):
        target_named("v100 " + "v 100 " * 20 + "x")


def test_devices_are_told_apart_by_what_records_are_filed_under() -> None:
    assert len({gpu.key for gpu in GPUS.values()}) == len(GPUS)


@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda gpu: gpu.name)
def test_figures_fit_together(gpu: Target) -> None:
    """A multiprocessor multiplies and adds in 64 or 128 lanes, at 1.2 to 2.6 GHz; dots are faster, memory slower."""
    cycles = {lanes: gpu.fp32_flops / (2 * lanes * gpu.num_sms) for lanes in (64, 128)}
    assert any(1.2e9 < hertz < 2.6e9 for hertz in cycles.values())
    assert gpu.fp32_flops <= gpu.tf32_flops <= gpu.matrix_flops <= 32 * gpu.fp32_flops
    assert 20 < gpu.matrix_flops / gpu.memory_bytes_per_s < 500
    assert 64 <= gpu.shared_memory_bytes / 1024 <= 227


def test_what_tensor_cores_do_not_multiply_has_the_rate_of_float32() -> None:
    v100, t4, a100, h200 = map(target_named, ("v100", "t4", "a100", "h200"))
    assert v100.flops_per_s("float16") == v100.matrix_flops
    assert {v100.flops_per_s(d) for d in ("float32", "bfloat16", "int8", "float8_e5m2")} == {v100.fp32_flops}
    assert t4.flops_per_s("float32", "tf32") == t4.fp32_flops
    assert t4.flops_per_s("int8") == 2 * t4.matrix_flops
    assert t4.flops_per_s("bfloat16") == t4.fp32_flops
    assert a100.flops_per_s("bfloat16") == a100.matrix_flops
    assert a100.flops_per_s("float32", "tf32") == a100.tf32_flops
    assert a100.flops_per_s("float8_e5m2") == a100.fp32_flops
    assert h200.flops_per_s("float8_e5m2") == 2 * h200.matrix_flops


def test_what_distinguishes_the_cards_of_a_family() -> None:
    assert target_named("v100-pcie").fp32_flops < target_named("v100").fp32_flops
    assert target_named("a100-40gb").memory_bytes_per_s < target_named("a100").memory_bytes_per_s
    assert target_named("h100-pcie").num_sms == 114


def test_a_target_of_ones_own_is_a_listed_one_with_other_figures() -> None:
    own = dataclasses.replace(target_named("v100"), name="v100s", device="Tesla V100S-PCIE-32GB", fp32_flops=16.4e12)
    assert Target.from_json(own.to_json()) == own
    assert own.key == "Tesla V100S-PCIE-32GB, sm_70"


def test_the_table_of_targets_says_what_cannot_be_compiled_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(line.startswith("Backend ") for line in target_lines())
    monkeypatch.setattr(nvrtc, "_libraries", lambda: ())
    (volta, *others) = [line for line in target_lines() if line.startswith("Backend cuda for ")]
    assert volta.startswith("Backend cuda for v100, v100-32gb, v100-pcie, v100-pcie-32gb: NVRTC")
    assert 'pip install -e ".[volta]"' in volta
    assert 'pip install -e ".[cuda]"' in others[0]
