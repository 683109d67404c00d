"""Which devices are here, and what is said when the one asked for is not."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from autosched import devices
from search_spaces import InputError, TargetUnavailableError, target_named

without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")


def test_the_cpu_is_described_with_plausible_figures() -> None:
    target = devices.cpu_target()
    assert target.kind == "cpu"
    assert target.lanes in (4, 8, 16)
    assert 8 * 2**10 <= target.l1_bytes <= target.l2_bytes <= 2**28
    assert 1e9 < target.fp32_flops < 1e12
    assert target.device.strip()


def test_more_threads_mean_more_flops_and_another_key() -> None:
    if len(devices.usable_cores()) < 2:
        pytest.skip("one core")
    one, two = devices.cpu_target(1), devices.cpu_target(2)
    assert two.fp32_flops == 2 * one.fp32_flops
    assert two.key != one.key


@pytest.mark.parametrize("threads", [0, -1, 10**6, True, "2"])
def test_threads_must_be_cores_that_are_here(threads: object) -> None:
    with pytest.raises(InputError, match="expected an integer from 1 to"):
        devices.cpu_target(threads)  # type: ignore[arg-type]


def test_resolving_nothing_gives_what_is_here() -> None:
    assert devices.resolve(None) == devices.detect()


def test_the_cpu_resolves_by_name_and_by_target() -> None:
    assert devices.resolve("cpu") == devices.cpu_target()
    assert devices.resolve(devices.cpu_target()) == devices.cpu_target()


@pytest.mark.parametrize("name", ["h20", "", "cuda:0", 7])
def test_an_unknown_name_is_refused_with_the_known_ones(name: object) -> None:
    with pytest.raises(InputError, match=r"unknown target .*allowed: a100, b200, cpu, h100"):
        devices.resolve(name)  # type: ignore[arg-type]


@without_gpu
@pytest.mark.parametrize("target", ["h200", "H200", target_named("v100")])
def test_a_gpu_that_is_not_here_is_unavailable_with_the_reason_and_what_is_here(target: object) -> None:
    with pytest.raises(TargetUnavailableError, match=r"(H200|V100).* but .*; this machine has CPU .*'cpu'"):
        devices.resolve(target)  # type: ignore[arg-type]


@without_gpu
def test_asking_for_the_gpu_of_a_machine_without_one_says_why_there_is_none() -> None:
    with pytest.raises(TargetUnavailableError, match="no GPU to tune for: "):
        devices.gpu_target()


def test_another_cpu_than_this_one_is_unavailable() -> None:
    other = dataclasses.replace(devices.cpu_target(), device="Cray-1")
    with pytest.raises(TargetUnavailableError, match="'Cray-1', but"):
        devices.resolve(other)


def test_the_environment_names_every_version_that_matters() -> None:
    versions = dict(devices.environment(devices.cpu_target()))
    assert versions["torch"] == torch.__version__
    assert {"python", "llvmlite", "device"} <= set(versions)
