"""What the CUDA backend makes of printed text, and which of it a device is given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from autosched import backends
from autosched.backends import spaces
from autosched.backends.backend import CompileError
from autosched.backends.cuda import nvrtc, source
from autosched.backends.cuda.backend import CudaBackend
from autosched.backends.cuda.printer import KernelPrinter
from autosched.backends.fingerprint import source_fingerprint
from autosched.backends.gpu.kernel import CudaKernel
from autosched.backends.triton.backend import TritonBackend
from autosched.kernels.kernel import load_kernel
from search_spaces import AutoschedError, Target, TargetUnavailableError, TileProgram, ops, target_named
from search_spaces.build import build
from tuning_logs import TuningRecord
from untuned import untuned_record

BACKEND = CudaBackend()
DYNAMIC_BYTES, STATIC_BYTES = 2048, 512

# By hand, and not what a program says: only to be compiled.
TEXT = """\
// a schedule
extern "C" __global__ void __launch_bounds__(128) doubled(const float* __restrict__ x, float* __restrict__ y) {
  extern __shared__ float asked_for[];
  __shared__ float declared[128];
  const int i = blockIdx.x * 128 + threadIdx.x;
  declared[threadIdx.x] = asked_for[threadIdx.x] = x[i];
  __syncthreads();
  y[i] = declared[127 - threadIdx.x] + asked_for[126 - threadIdx.x];
}
"""


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> TileProgram:
    kernel = CudaKernel("doubled", ("x", "y"), 8, 4, 1, DYNAMIC_BYTES, 0, 0)
    monkeypatch.setattr(source, "launched", lambda program, target: (kernel, kernel))
    space = build(ops.softmax(64, 128), target_named("v100"))
    return space.lower(next(iter(space)))


@pytest.mark.parametrize("target", ["v100", "t4", "a100", "h200", "b200"])
def test_facts_are_those_of_the_cubin(program: TileProgram, target: str) -> None:
    artefact = BACKEND.compile(TEXT, program, target_named(target))
    cubin, ptx = artefact.binaries
    assert cubin.startswith(b"\x7fELF")
    assert b".entry doubled" in ptx
    assert 0 < (artefact.facts.registers or 0) < 64
    assert artefact.facts.spill_bytes == 0
    assert artefact.facts.shared_memory_bytes == DYNAMIC_BYTES + STATIC_BYTES


@pytest.mark.parametrize(("capability", "is_cubin"), [((7, 0), True), ((9, 0), False)])
def test_a_device_of_another_kind_gets_the_ptx(
    program: TileProgram, monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], is_cubin: bool
) -> None:
    """Loaded once for both kernels, since they are one text."""
    launch = pytest.importorskip("autosched.backends.gpu.launch", reason="needs cuda-bindings")
    loaded: list[Any] = []
    monkeypatch.setattr(launch, "CudaLauncher", lambda program, images, kernels: loaded.append((images, kernels)))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    artefact = BACKEND.compile(TEXT, program, target_named("v100"))
    BACKEND.load(artefact, program)
    ((images, kernels),) = loaded
    assert images == [artefact.binaries[0 if is_cubin else 1]] * 2
    assert [k.name for k in kernels] == ["doubled", "doubled"]


def test_it_serves_gpus_from_volta_on(program: TileProgram) -> None:
    pascal = Target.from_json(target_named("v100").to_json() | {"name": "p100", "capability": 60})
    assert BACKEND.serves(target_named("v100"))
    assert not BACKEND.serves(pascal)
    with pytest.raises(CompileError, match=r"target p100 is no GPU of compute capability 7\.0 or later"):
        BACKEND.compile(TEXT, program, pascal)


def test_a_fingerprint_leaves_out_the_comment_at_the_top(program: TileProgram) -> None:
    found = source_fingerprint(TEXT, program)
    assert found == source_fingerprint(TEXT.replace("a schedule", "another\n// in other words"), program)
    assert found != source_fingerprint(TEXT.replace("127", "125"), program)


def record_of(backend: str) -> TuningRecord:
    workload, h200 = ops.softmax(64, 128), target_named("h200")
    schedule = spaces.build(workload, h200, [backends.named(backend)]).sample(np.random.default_rng(0))
    return untuned_record(schedule, workload, h200)


def test_a_cuda_record_where_only_triton_is_installed_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    record = record_of("cuda")
    monkeypatch.setattr(nvrtc, "_libraries", lambda: ())
    with pytest.raises(AutoschedError, match=r"backend 'cuda': NVRTC.* not installed.*pip install -e \"\.\[cuda\]\""):
        load_kernel(record)
    assert [backend.name for backend in backends.usable(record.target)] == ["triton"]


def test_a_triton_record_where_only_cuda_is_installed_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    record = record_of("triton")
    monkeypatch.setattr(TritonBackend, "why_unavailable", lambda self, target: "Triton is not installed; expected it")
    with pytest.raises(AutoschedError, match="backend 'triton': Triton is not installed; expected it"):
        load_kernel(record)
    assert [backend.name for backend in backends.usable(record.target)] == ["cuda"]


def test_tuning_for_volta_without_its_compiler_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_libraries", lambda: ())
    command = r"nothing here compiles for Tesla V100.*pip install -e \"\.\[volta\]\""
    with pytest.raises(TargetUnavailableError, match=command):
        backends.usable(target_named("v100"))


def test_what_is_compiled_after_it_was_printed_is_not_printed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[str] = []
    text = KernelPrinter.text
    monkeypatch.setattr(KernelPrinter, "text", lambda self: printed.append("once") or text(self))
    schedule = spaces.build(ops.softmax(48, 80), target_named("a100"), [BACKEND]).seeds()[0]
    source = BACKEND.render(schedule.program, "", target_named("a100"))
    BACKEND.compile(source, schedule.program, target_named("a100"))
    assert printed == ["once"] * len(schedule.program.kernels)
