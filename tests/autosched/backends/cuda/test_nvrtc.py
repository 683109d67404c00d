"""CUDA C++ is compiled without nvcc, headers or a GPU, and what is missing for that is said."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from autosched.backends.backend import CompileError
from autosched.backends.cuda import nvrtc
from autosched.backends.gpu.cubin import read_cubin

SOURCE = """\
// {remark}
extern "C" __global__ void __launch_bounds__(128) doubled(const float* __restrict__ x, float* __restrict__ y) {{
  __shared__ float kept[128];
  const int i = blockIdx.x * 128 + threadIdx.x;
  kept[threadIdx.x] = x[i];
  __syncthreads();
  y[i] = {expression};
}}
"""


def source(expression: str = "2.0f * kept[127 - threadIdx.x]", remark: str = "") -> str:
    return SOURCE.format(expression=expression, remark=remark)


@dataclass
class Installed:
    """A library that is only asked for what it compiles for."""

    version: str
    capabilities: tuple[int, ...]


@pytest.mark.parametrize("capability", [70, 72, 75, 80, 86, 89, 90, 100, 120])
def test_every_architecture_has_a_compiler(capability: int) -> None:
    compiled = nvrtc.compile_text(source(), capability)
    assert read_cubin(compiled.cubin).registers > 0
    assert f".target sm_{capability}\n" in compiled.ptx.decode()
    assert compiled.ptx.endswith(b"\0")


def test_two_compilers_serve_one_process_in_turn() -> None:
    alone = nvrtc.compile_text(source(), 70)
    nvrtc.compile_text(source(), 90)
    assert nvrtc.compile_text(source(), 70) == alone
    assert nvrtc.version_for(70).startswith("12.")
    assert not nvrtc.version_for(90).startswith("12.")


def test_instructions_of_hopper_alone_compile_for_it_and_for_no_other() -> None:
    fenced = source('2.0f * kept[0]; asm volatile("wgmma.fence.sync.aligned;")')
    assert ".target sm_90a" in nvrtc.compile_text(fenced, 90).ptx.decode()
    with pytest.raises(CompileError, match=r"ptxas.*wgmma\.fence.*not supported"):
        nvrtc.compile_text(fenced, 80)


def test_a_comment_changes_neither_cubin_nor_ptx() -> None:
    assert nvrtc.compile_text(source(remark="one"), 80) == nvrtc.compile_text(source(remark="another"), 80)


def test_a_text_that_is_refused_fails_with_the_first_error_of_the_compiler() -> None:
    with pytest.raises(CompileError, match=r'^kernel.cu\(7\): error: identifier "unknown" is undefined$'):
        nvrtc.compile_text(source("unknown * another"), 80)


def test_a_small_kernel_compiles_in_four_tenths_of_a_second() -> None:
    nvrtc.compile_text(source(), 80)
    begin = time.process_time()
    nvrtc.compile_text(source(remark="again"), 80)
    assert time.process_time() - begin < 0.4


def test_without_a_compiler_the_error_names_the_command_that_installs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_libraries", lambda: ())
    with pytest.raises(CompileError, match=r'NVRTC.* is not installed; .*pip install -e "\.\[cuda\]"'):
        nvrtc.compile_text(source(), 90)
    with pytest.raises(CompileError, match=r'is not installed; .*pip install -e "\.\[volta\]"'):
        nvrtc.compile_text(source(), 70)


def test_a_compiler_that_is_too_new_for_volta_is_told_with_the_command_that_mends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nvrtc, "_libraries", lambda: (Installed("13.0", (75, 80, 90)),))
    assert nvrtc.why_unavailable(90) is None
    expected = r'NVRTC 13.0 has no sm_70, but sm_75 to sm_90; expected one with it: pip install -e ".[volta]"'
    assert nvrtc.why_unavailable(70) == expected


def test_the_newest_compiler_that_knows_an_architecture_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of them is found first."""
    versions = {"old": "12.6", "new": "13.0"}
    capabilities = {"old": (70, 90), "new": (90, 120)}
    monkeypatch.setattr(nvrtc, "_loaded", lambda: iter(versions))
    monkeypatch.setattr(nvrtc, "Library", lambda name: Installed(versions[name], capabilities[name]))
    nvrtc._libraries.cache_clear()
    found = [nvrtc.version_for(capability) for capability in (70, 90, 120)]
    nvrtc._libraries.cache_clear()
    assert found == ["12.6", "13.0", "13.0"]


def test_a_compiler_that_is_too_old_for_a_device_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_libraries", lambda: (Installed("12.6", (70, 75, 80, 90)),))
    assert str(nvrtc.why_unavailable(120)).startswith("NVRTC 12.6 has no sm_120, but sm_70 to sm_90; ")
