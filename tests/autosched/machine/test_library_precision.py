"""Precision of PyTorch's products and convolutions: read from any of its settings, and set for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from autosched.machine.devices import cpu_target
from autosched.machine.library_precision import LibraryPrecision
from search_spaces import target_named

GPU, CPU = torch.device("cuda"), torch.device("cpu")
OPERATIONS = ("all", "matmul", "conv", "rnn")


def newer(operation: str, precision: str) -> None:
    torch._C._set_fp32_precision_setter("cuda", operation, precision)


def state() -> list[str]:
    return [torch._C._get_fp32_precision_getter("cuda", name) for name in OPERATIONS]


@pytest.fixture(autouse=True)
def _usual_settings() -> Iterator[None]:
    yield
    newer("all", "none")
    torch.set_float32_matmul_precision("highest")
    torch._C._set_cudnn_allow_tf32(True)


# Settings by name: PyTorch's older switches, its newer ones, and both so that they differ.
SETTINGS: dict[str, tuple[Callable[[], object], LibraryPrecision]] = {
    "none": (lambda: None, LibraryPrecision("ieee", "tf32")),
    "products": (lambda: torch.set_float32_matmul_precision("high"), LibraryPrecision("tf32", "tf32")),
    "products less": (lambda: torch.set_float32_matmul_precision("medium"), LibraryPrecision("tf32", "tf32")),
    "products, newer": (lambda: newer("matmul", "tf32"), LibraryPrecision("tf32", "tf32")),
    "cuDNN": (lambda: torch._C._set_cudnn_allow_tf32(False), LibraryPrecision("ieee", "ieee")),
    "convolutions, newer": (lambda: newer("conv", "ieee"), LibraryPrecision("ieee", "ieee")),
    "all, newer": (lambda: (newer("all", "ieee"), newer("conv", "none")), LibraryPrecision("ieee", "ieee")),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_products_and_convolutions_are_those_of_pytorch(name: str) -> None:
    change, expected = SETTINGS[name]
    change()
    assert LibraryPrecision.now() == expected


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("precision", [LibraryPrecision("tf32", "ieee"), LibraryPrecision("ieee", "tf32")], ids=str)
def test_settings_are_applied_for_a_while_in_all_of_pytorchs_words(precision: LibraryPrecision, name: str) -> None:
    SETTINGS[name][0]()
    before = [s == "tf32" for s in state()]
    with precision.applied():
        assert LibraryPrecision.now() == precision
        assert torch.get_float32_matmul_precision() == ("high" if precision.products == "tf32" else "highest")
        assert torch.backends.cudnn.allow_tf32 == (precision.convolutions == "tf32")
    assert [s == "tf32" for s in state()] == before


def test_the_older_precision_of_products_is_as_it_was() -> None:
    torch.set_float32_matmul_precision("medium")
    with LibraryPrecision().applied():
        pass
    assert torch.get_float32_matmul_precision() == "medium"


CUT, EXACT, ON_CPU = LibraryPrecision("tf32", "tf32"), LibraryPrecision(), LibraryPrecision("tf32", "ieee")


@pytest.mark.parametrize(("capability", "expected"), [((7, 0), EXACT), ((8, 0), CUT), ((12, 0), CUT)])
def test_nothing_is_cut_on_a_gpu_without_tf32(
    capability: tuple[int, int], expected: LibraryPrecision, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert CUT.on(GPU) == CUT, "it is not here"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert CUT.on(GPU) == expected
    assert CUT.on(CPU) == ON_CPU


@pytest.mark.parametrize(("target", "expected"), [("v100", EXACT), ("t4", EXACT), ("a100", CUT), ("h200", CUT)])
def test_settings_mean_the_same_for_a_target(target: str, expected: LibraryPrecision) -> None:
    assert CUT.on_target(target_named(target)) == expected
    assert CUT.on_target(cpu_target()) == ON_CPU


def test_where_there_are_no_convolutions_they_have_no_precision_anywhere() -> None:
    without = LibraryPrecision("ieee", "")
    assert without.on(CPU) == without.on(GPU) == without.on_target(cpu_target()) == without
    assert [str(p) for p in (without, CUT, ON_CPU)] == ["ieee", "tf32", "tf32, convolutions ieee"]
