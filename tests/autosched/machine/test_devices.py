"""Which devices are here, and what is said when the one asked for is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

from autosched.backends.cuda import nvrtc
from autosched.backends.environment import environment
from autosched.machine import devices
from autosched.machine.cores import usable_cores
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
    if len(usable_cores()) < 2:
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
    assert devices.resolve("cpu") == devices.resolve("CPU") == devices.cpu_target()
    assert devices.resolve(devices.cpu_target()) == devices.cpu_target()


@pytest.mark.parametrize("name", ["h20", "", "cuda:0", 7])
def test_an_unknown_name_is_refused_with_the_known_ones(name: object) -> None:
    with pytest.raises(InputError, match=r"unknown target .*allowed: a10, a100, .*b200, cpu, cuda, h100"):
        devices.resolve(name)  # type: ignore[arg-type]


@without_gpu
@pytest.mark.parametrize("target", ["h200", "H200", target_named("v100")])
def test_a_gpu_that_is_not_here_is_unavailable_with_the_reason_and_what_is_here(target: object) -> None:
    with pytest.raises(TargetUnavailableError, match=r"(H200|V100).* but .*; this machine has CPU .*'cpu'"):
        devices.resolve(target)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "why"),
    [({"device": "Another CPU"}, "'Another CPU', but this machine has '"), ({"threads": 10**6}, "process may use")],
)
def test_a_cpu_target_that_does_not_fit_is_unavailable_and_nothing_is_said_of_gpus(
    changed: dict[str, Any], why: str
) -> None:
    with pytest.raises(TargetUnavailableError, match=why) as refused:
        devices.resolve(dataclasses.replace(devices.cpu_target(), **changed))
    assert "CUDA" not in str(refused.value)
    assert "NVIDIA" not in str(refused.value)


@without_gpu
def test_asking_for_the_gpu_of_a_machine_without_one_says_why_there_is_none() -> None:
    with pytest.raises(TargetUnavailableError, match="no GPU to tune for: "):
        devices.gpu_target()


@dataclasses.dataclass(frozen=True)
class Card:
    """What PyTorch says of a GPU."""

    major: int
    minor: int
    multi_processor_count: int = 80
    L2_cache_size: int = 6 * 2**20


@pytest.fixture
def insert_card(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make PyTorch see a GPU of that name and compute capability."""

    def insert(device: str, capability: int = 70) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda: device)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Card(*divmod(capability, 10)))

    return insert


@pytest.mark.parametrize(
    ("name", "device", "capability"),
    [
        ("v100", "Tesla V100-DGXS-32GB", 70),
        ("V100", "Tesla V100-FHHL-16GB", 70),
        ("a100", "NVIDIA A100-PG509-200", 80),
        ("h100", "NVIDIA H100 NVL", 90),
        ("rtx4090", "NVIDIA GeForce RTX 4090 D", 89),
    ],
)
def test_a_name_stands_for_every_card_of_the_family(
    name: str, device: str, capability: int, insert_card: Callable[..., None]
) -> None:
    insert_card(device, capability)
    target = devices.resolve(name)
    assert (target.name, target.device, target.key) == (name.lower(), device, device)
    assert (target.num_sms, target.l2_bytes) == (80, 6 * 2**20)
    assert devices.resolve(None) == devices.resolve(target) == target


def test_a_card_that_is_of_no_family_is_found_by_its_own_name(insert_card: Callable[..., None]) -> None:
    """Its records tell the compute capability, which nobody knows from its name."""
    insert_card("NVIDIA T1000", 75)
    target = devices.resolve("T1000")
    assert (target.name, target.label, target.key) == ("t1000", "NVIDIA T1000", "NVIDIA T1000, sm_75")
    assert devices.resolve(None) == devices.resolve(target) == target


def test_code_for_an_older_gpu_is_told_apart_from_the_device_s_own() -> None:
    own = target_named("h200")
    older = dataclasses.replace(own, name="mine", capability=70)
    assert (own.key, own.label) == ("NVIDIA H200", "NVIDIA H200")
    assert (older.key, older.label) == ("NVIDIA H200, sm_70", "NVIDIA H200 as sm_70")


@pytest.mark.parametrize(("name", "device"), [("t4", "NVIDIA T400 4GB"), ("h200", "NVIDIA GH200 480GB")])
def test_a_name_that_only_looks_alike_is_another_card(name: str, device: str, insert_card: Callable[..., None]) -> None:
    insert_card(device)
    with pytest.raises(TargetUnavailableError, match=f"but this machine has {device}"):
        devices.resolve(name)


def test_cuda_is_the_gpu_that_is_here_whatever_it_is_called(insert_card: Callable[..., None]) -> None:
    insert_card("NVIDIA A100-PCIE-40GB")
    assert devices.resolve("cuda") == devices.resolve("CUDA") == devices.gpu_target()


@without_gpu
def test_cuda_without_a_gpu_is_unavailable_with_the_reason() -> None:
    with pytest.raises(TargetUnavailableError, match="there is no GPU to tune for: "):
        devices.resolve("cuda")


def test_a_listed_card_keeps_the_figures_of_its_datasheet(insert_card: Callable[..., None]) -> None:
    insert_card("Tesla V100-SXM2-16GB")
    assert devices.resolve("v100") == target_named("v100")


@pytest.mark.parametrize("name", ["v100", "V-100", "v100-32gb", "V100 PCIe", "Tesla V100-PCIE-32GB", None])
def test_a_variant_goes_by_the_name_of_its_family_and_by_its_own(
    name: str | None, insert_card: Callable[..., None]
) -> None:
    insert_card("Tesla V100-PCIE-32GB")
    assert devices.resolve(name) == target_named("v100-pcie-32gb")


def test_the_name_of_another_variant_is_not_that_of_the_card_that_is_here(insert_card: Callable[..., None]) -> None:
    insert_card("NVIDIA A100-SXM4-40GB")
    with pytest.raises(
        TargetUnavailableError, match=r"target 'A100 80GB' is NVIDIA A100-SXM4-80GB.*has NVIDIA A100-SXM4-40GB"
    ):
        devices.resolve("A100 80GB")


def test_another_cpu_than_this_one_is_unavailable() -> None:
    other = dataclasses.replace(devices.cpu_target(), device="Cray-1")
    with pytest.raises(TargetUnavailableError, match="'Cray-1', but"):
        devices.resolve(other)


def test_the_environment_names_every_version_that_matters() -> None:
    versions = dict(environment(devices.cpu_target()))
    assert versions["torch"] == torch.__version__
    assert {"python", "llvmlite", "device"} <= set(versions)
    assert {"python", "triton", "nvrtc", "device"} <= set(dict(environment(target_named("v100"))))


def test_the_version_of_nvrtc_is_what_the_library_that_compiles_for_the_target_tells() -> None:
    for capability in (70, 90):
        target = dataclasses.replace(target_named("h200"), capability=capability)
        library = next(x for x in nvrtc._libraries() if capability in x.capabilities)
        assert dict(environment(target))["nvrtc"] == library.version
