"""CUDA kernels as files of their own. On a GPU: `pytest -m gpu tests/autosched/standalone/test_standalone_cuda.py`."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import autosched
import best_spaces
from autosched.backends import spaces
from autosched.backends.cuda.backend import CudaBackend
from autosched.backends.gpu.kernel import CudaKernel, TensorMap, Window
from autosched.standalone import cuda_kernels
from autosched.standalone.file import traced_text, workload_text
from autosched.standalone.tuned import Tuned
from isolated_python import isolated
from needed import needs_gpu
from search_spaces import Target, Workload, ops, target_named
from tuning_logs import Measurement, Provenance, TuningRecord

H200 = target_named("h200")
# Compiles what the file holds, where nothing of this project can be found, and checks how it would be launched.
_COMPILE = """
import sys
file, variable, capability = sys.argv[1:]
sys.path.insert(0, file.rpartition("/")[0])
source = getattr(__import__(file.rpartition("/")[2].removesuffix(".py")), variable)
try:
    print(source.cubin(int(capability))[:4])
except RuntimeError as error:
    print(error)
ours = {name.partition(".")[0] for name in sys.modules} & {"autosched", "search_spaces"}
assert not ours, ours
"""


def tuned(workload: Workload, target: Target = H200, backend: str = "cuda") -> Tuned:
    """As if the first schedule drawn had been the best."""
    makers = [CudaBackend()] if backend == "cuda" else None
    space = spaces.build(workload, target, makers) if makers else best_spaces.build(workload, target)
    schedule = space.sample(np.random.default_rng(0))
    provenance = Provenance("0123456789ab", "cold", 0.0, 0, 0, (("torch", "2.9"),))
    record = TuningRecord(workload, target, schedule, Measurement("ok", (12.34e-6,)), provenance)
    return Tuned.of(record, schedule, workload)


def compiled(text: str, variable: str, capability: int, folder: Path) -> str:
    """What a process without autosched says when it compiles the source of a file for such devices."""
    ast.parse(text, feature_version=(3, 10))
    file = folder / "standing_alone.py"
    file.write_text(text, encoding="utf-8")
    done = isolated("-c", _COMPILE, str(file), variable, str(capability))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_source_in_a_file_is_compiled_without_autosched(tmp_path: Path) -> None:
    text = workload_text(tuned(ops.softmax(64, 1000)))
    assert "import triton" not in text
    assert "Needs PyTorch and cuda-bindings with NVRTC." in text
    assert compiled(text, "MAX_SUM_64", 90, tmp_path) == r"b'\x7fELF'"


def test_dots_of_one_architecture_alone_are_not_compiled_for_another(tmp_path: Path) -> None:
    one = tuned(product := ops.matmul(512, 512, 512, dtype="float16"))
    starts = spaces.build(product, H200, [CudaBackend()]).seeds()
    text = workload_text(replace(one, schedule=next(s for s in starts if s.knobs["specialize"] != "none")))
    expected = "the GPU has compute capability 10.0; expected 9.0"
    assert compiled(text, "DOT_512X512", 100, tmp_path) == expected


def test_other_code_for_hopper_is_compiled_for_what_came_after(tmp_path: Path) -> None:
    text = workload_text(tuned(ops.softmax(64, 1000)))
    assert compiled(text, "MAX_SUM_64", 100, tmp_path) == r"b'\x7fELF'"


def test_code_for_an_older_architecture_is_compiled_for_the_device(tmp_path: Path) -> None:
    text = workload_text(tuned(ops.softmax(64, 1000), target_named("v100")))
    assert compiled(text, "MAX_SUM_64", 90, tmp_path) == r"b'\x7fELF'"


def test_a_file_for_volta_asks_for_the_last_compiler_that_knows_it(tmp_path: Path) -> None:
    """The one of CUDA 13 is here, and the usual one."""
    text = workload_text(tuned(ops.softmax(64, 1000), target_named("v100")))
    assert "Needs PyTorch and cuda-bindings 12 with NVRTC 12." in text
    expected = "NVRTC 13 has left out the GPU; expected cuda-bindings 12 with NVRTC 12"
    assert compiled(text, "MAX_SUM_64", 70, tmp_path) == expected


def test_kernels_of_two_backends_stand_in_one_file() -> None:
    def twice(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.softmax(x, -1), y.t().contiguous().sum(0)

    traced = autosched.trace(twice, torch.empty(64, 1000), torch.empty(96, 200))
    first, *others = traced.workloads
    found = {first.key: tuned(first)} | {w.key: tuned(w, backend="triton") for w in others}
    text, _ = traced_text(traced, found)
    ast.parse(text)
    assert "one CUDA kernel and one Triton kernel" in text
    assert "Needs PyTorch, cuda-bindings with NVRTC and Triton 3.6 to 3.9." in text


def test_a_tensor_map_is_passed_with_the_innermost_size_first(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("autosched.backends.gpu.tensor_maps", reason="needs cuda-bindings")
    described = TensorMap("x", "float16", (64, 1000), (1024, 1), (16, 64), 3, sizes_follow=False)
    kernel = CudaKernel("softmax", ("out",), 4, 8, 2, 100_000, 0, 0, (described,))
    monkeypatch.setattr(cuda_kernels, "launched", lambda program, target: (kernel,))
    one = tuned(ops.softmax(64, 1000))
    kernels = cuda_kernels.CudaKernels(one.schedule.program, H200, "SOFTMAX")
    assert any("class _TensorMap" in text for text in kernels.functions)
    statement = kernels.launch(one.schedule.program.kernels[0], {"x": "x_", "out": "out_"})
    assert statement.replace("\n", "").replace(" ", "") == (
        'SOFTMAX.launch("softmax",(out_,),maps=(_TensorMap(x_,6,(1000,64),(2048,),(64,16),3),),'
        "blocks=8,threads=256,shared_bytes=100000,cluster=2,)"
    )


def test_an_im2col_map_is_passed_with_its_corners_and_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("autosched.backends.gpu.tensor_maps", reason="needs cuda-bindings")
    window = Window((-1, -2), (0, 1), (2, 3))
    described = TensorMap("x", "float16", (2, 8, 6, 64), (3072, 384, 64, 1), (128, 32), 2, False, window)
    kernel = CudaKernel("softmax", ("out",), 4, 8, 1, 0, 0, 0, (described,))
    monkeypatch.setattr(cuda_kernels, "launched", lambda program, target: (kernel,))
    one = tuned(ops.softmax(64, 1000))
    kernels = cuda_kernels.CudaKernels(one.schedule.program, H200, "SOFTMAX")
    statement = kernels.launch(one.schedule.program.kernels[0], {"x": "x_", "out": "out_"})
    expected = "_TensorMap(x_,6,(64,6,8,2),(128,768,6144),(32,128),2,((-2,-1),(1,0),(3,2)))"
    assert expected in statement.replace("\n", "").replace(" ", "")


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("target", ["v100", "a100", "h200"])
@pytest.mark.parametrize("op", [ops.softmax(300, 1000), ops.layernorm(64, 3000)], ids=lambda op: op.name)
def test_the_self_test_passes_on_a_gpu(op: Workload, target: str, tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text(workload_text(tuned(op, target_named(target))), encoding="utf-8")
    done = subprocess.run([sys.executable, "-I", str(tmp_path / "alone.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "us with hot caches" in done.stdout
