"""Files with compiled kernels. On a GPU: `pytest -m gpu tests/autosched/standalone/test_cubins_in_files.py`."""

from __future__ import annotations

import ast
import ctypes
import subprocess
import sys
import types
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from autosched.backends import CompileError, spaces
from autosched.backends.cuda.backend import CudaBackend
from autosched.backends.gpu.kernel import CudaKernel, TensorMap
from autosched.backends.triton.backend import TritonBackend
from autosched.machine import devices
from autosched.standalone import cubin_kernels
from autosched.standalone.driver_launches import launch_text, runtime_texts
from autosched.standalone.file import workload_text
from autosched.standalone.tuned import Tuned
from needed import needs_gpu, needs_nvrtc
from search_spaces import InputError, Target, Workload, ops, target_named
from tuning_logs import Measurement, Provenance, TuningRecord

H200 = target_named("h200")
SOFTMAX = ops.softmax(64, 1000)
BACKENDS = {"triton": TritonBackend(), "cuda": CudaBackend()}
# Decodes what a file holds, where neither Triton nor NVRTC nor anything of this project may be imported.
_DECODE = """
import sys
file, *variables = sys.argv[1:]
for name in ("triton", "autosched", "search_spaces", "cuda.bindings.nvrtc"):
    sys.modules[name] = None
sys.path.insert(0, file.rpartition("/")[0])
module = __import__(file.rpartition("/")[2].removesuffix(".py"))
for name in variables:
    kernels = getattr(module, name)
    code = kernels.cubin(90)
    print(code[:4], len(code))
    try:
        kernels.cubin(80)
    except RuntimeError as error:
        print(error)
"""


def tuned(workload: Workload, backend: str, target: Target = H200) -> Tuned:
    """As if the first schedule drawn that compiles had been the best, for a file with cubins."""
    space, rng, maker = spaces.build(workload, target, [BACKENDS[backend]]), np.random.default_rng(0), BACKENDS[backend]
    for schedule in (space.sample(rng) for _ in range(20)):
        program = schedule.program
        # Triton refuses some, other ones in each version.
        with suppress(CompileError):
            maker.compile(maker.render(program, "", target), program, target)
            break
    provenance = Provenance("0123456789ab", "cold", 0.0, 0, 0, (("torch", "2.9"),))
    record = TuningRecord(workload, target, schedule, Measurement("ok", (12.34e-6,)), provenance)
    return replace(Tuned.of(record, schedule, workload), cubins=True)


@pytest.mark.parametrize("backend", ["triton", pytest.param("cuda", marks=needs_nvrtc)])
def test_a_file_holds_the_code_that_the_backend_compiles_and_needs_no_compiler(backend: str, tmp_path: Path) -> None:
    one = tuned(SOFTMAX, backend)
    program, maker = one.schedule.program, BACKENDS[backend]
    cubin = maker.compile(maker.render(program, "", H200), program, H200).binaries[0]
    text = workload_text(one)
    ast.parse(text, feature_version=(3, 10))
    assert "Needs PyTorch and cuda-bindings." in text
    file = tmp_path / "standing_alone.py"
    file.write_text(text, encoding="utf-8")
    command = [sys.executable, "-I", "-c", _DECODE, str(file), program.name.upper()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        rf"b'\x7fELF' {len(cubin)}",
        "the GPU has compute capability 8.0; expected 9.0",
    ]


def test_kernels_of_one_program_have_a_cubin_each() -> None:
    product = ops.matmul(64, 64, 65536, dtype="float16")
    space = spaces.build(product, H200, [BACKENDS["triton"]])
    schedule = next(s for s in map(space.sample, map(np.random.default_rng, range(400))) if len(s.program.kernels) > 1)
    text = workload_text(replace(tuned(product, "triton"), schedule=schedule))
    launched = [line.strip().partition(".launch(")[0] for line in text.split("\n") if ".launch(" in line]
    assert len(set(launched)) == len(schedule.program.kernels)
    assert all(f"{variable} = _Kernels(_cubin(90" in text for variable in launched)


def test_without_a_compiler_none_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise cubin_kernels.CompileError("NVRTC is not installed")

    one = tuned(SOFTMAX, "triton")
    monkeypatch.setattr(TritonBackend, "compile", refused)
    with pytest.raises(InputError, match=r"has no cubin for .*: NVRTC is not installed"):
        workload_text(one)


class _Address:
    """A tensor of which a launch needs the address alone."""

    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        return self.address


def passed(kernel: CudaKernel, count: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], types.SimpleNamespace]:
    """The first eight bytes of each parameter that a file's statement passes to the driver, and the launch."""
    found: list[Any] = []

    def launched(config: Any, function: object, parameters: int, extra: int) -> tuple[int]:
        places = (ctypes.c_void_p * count).from_address(parameters)
        found.append(([ctypes.c_uint64.from_address(p or 0).value for p in places], config))
        return (0,)

    made_current: list[str] = []
    driver = types.SimpleNamespace(
        CUlaunchConfig=types.SimpleNamespace,
        CUstream=lambda stream: stream,
        cuLaunchKernelEx=launched,
        # As in a thread that never touched the device.
        cuCtxGetCurrent=lambda: (0, 0),
        cuDeviceGet=lambda number: (0, number),
        cuDevicePrimaryCtxRetain=lambda device: (0, f"of {device}"),
        cuCtxSetCurrent=lambda context: (made_current.append(context), (0,))[1],
    )
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: types.SimpleNamespace(cuda_stream=7))
    usual = torch.empty
    monkeypatch.setattr(torch, "empty", lambda size, dtype, device: usual(size, dtype=dtype).fill_(1))
    names: dict[str, Any] = {"torch": torch, "ctypes": ctypes, "driver": driver, "x_": _Address(11), "y_": _Address(22)}
    exec("\n\n".join(runtime_texts(mapped=False)), names)
    # The driver makes maps.
    names["_TensorMap"] = lambda tensor, *_, numbers=(): types.SimpleNamespace(
        address=ctypes.addressof(names.setdefault("map", ctypes.c_uint64(33))), numbers=numbers
    )
    names["K"] = names["_Kernels"](None)
    monkeypatch.setattr(names["_Kernels"], "loaded", lambda *_: "function")
    exec(launch_text("K", kernel, {"x": "x_", "y": "y_"}), names)
    (only,) = found
    assert made_current == ["of 1"]
    return only


def test_parameters_are_tensors_then_maps_with_sizes_and_strides_then_scratch_and_null(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("autosched.backends.gpu.tensor_maps", reason="needs cuda-bindings")
    described = TensorMap("x", "float16", (64, 1000), (1024, 1), (16, 64), 3)
    kernel = CudaKernel("softmax", ("y", "x"), 4, 8, 1, 100, 16, 3, (described,))
    parameters, launch = passed(kernel, 10, monkeypatch)
    *others, scratch, first_null, second_null = parameters
    assert others == [22, 11, 33, 64, 1000, 1024, 1]
    assert scratch
    assert (first_null, second_null) == (0, 0)
    assert (launch.gridDimX, launch.blockDimX, launch.sharedMemBytes, launch.hStream) == (4, 256, 100, 7)


def test_scratch_is_for_every_block() -> None:
    statement = launch_text("K", CudaKernel("k", (), 4, 8, 2, 0, 16, 1), {})
    assert "scratch_bytes=128" in statement


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("op", [SOFTMAX, ops.matmul(256, 256, 256, dtype="float16")], ids=lambda op: op.name)
def test_the_self_test_passes_on_a_gpu(op: Workload, backend: str, tmp_path: Path) -> None:
    target = devices.resolve(None)
    (tmp_path / "alone.py").write_text(workload_text(tuned(op, backend, target)), encoding="utf-8")
    done = subprocess.run([sys.executable, "-I", str(tmp_path / "alone.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "us with hot caches" in done.stdout
