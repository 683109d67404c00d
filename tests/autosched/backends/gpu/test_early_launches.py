"""Programs whose kernels begin while what is before them ends: by the text and the machine code of every printer."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import search_spaces
from autosched.backends.backend import Backend, CompileError
from autosched.backends.cuda.backend import CudaBackend
from autosched.backends.triton.backend import TritonBackend
from chained_workloads import attention
from machine_code import machine_code
from needed import needs_nvrtc
from search_spaces import TileProgram, Workload, ops, target_named
from search_spaces.programs.grid import Grid
from search_spaces.programs.statements import Load, Store
from search_spaces.programs.tile_program import Buffer, Kernel, Launch
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.workloads.expressions.affine import Affine

H200, A100 = target_named("h200"), target_named("a100")
TRITON, CUDA = TritonBackend(), CudaBackend()
ROWS = ops.softmax(64, 1000, dtype="float16")
PRODUCT = ops.matmul(512, 512, 256, dtype="bfloat16", layout="nt")
ATTENTION = attention(4, 256, 256, 64, "bfloat16")
# Of a wait, a trigger, and an access to memory that other kernels may use, in machine code.
WAIT, TRIGGER, ACCESS = "ACQBULK", "PREEXIT", r"LDG|STG|RED|ATOM|UTMALDG|UTMASTG|UTMAREDG"
KINDS = [
    pytest.param(TRITON, ROWS, {}, id="triton"),
    pytest.param(TRITON, PRODUCT, {"specialize": "none", "split": 2}, id="triton, two kernels"),
    pytest.param(TRITON, PRODUCT, {"specialize": "cooperative"}, id="gluon"),
    pytest.param(TRITON, ATTENTION, {"specialize": "cooperative"}, id="gluon chains"),
    pytest.param(CUDA, ROWS, {}, id="cuda", marks=needs_nvrtc),
    pytest.param(CUDA, PRODUCT, {"specialize": "cooperative"}, id="cuda warp groups", marks=needs_nvrtc),
]


def program(backend: Backend, workload: Workload, fixed: dict[str, object]) -> TileProgram:
    """Of a random legal schedule with these values of knobs."""
    space = search_spaces.build(workload, H200, {backend.name: backend.limits})
    space = space.restricted(space.sketches[0].name, **{name: [value] for name, value in fixed.items()})
    return space.sample(np.random.default_rng(0)).program


def order(binary: bytes, folder: Path) -> list[list[str]]:
    """Waits, triggers and accesses in the machine code of every function of a binary."""
    found: list[list[str]] = []
    for line in machine_code(binary, folder):
        if line.startswith(".text."):
            found.append([])
        for function in found[-1:]:
            function += re.findall(rf"\b({WAIT}|{TRIGGER}|{ACCESS})", line)
    return found


@pytest.mark.parametrize(("backend", "workload", "fixed"), KINDS)
def test_every_kernel_waits_before_its_first_access_and_then_triggers_the_next(
    backend: Backend, workload: Workload, fixed: dict[str, object], tmp_path: Path
) -> None:
    """Also those that read nothing that the kernel before writes: the next one waits for this one alone."""
    early = program(backend, workload, fixed).launched_early
    source = backend.render(early, "", H200)
    artefact = backend.compile(source, early, H200)
    binaries = artefact.binaries if backend is TRITON else artefact.binaries[:1]
    functions = [f for binary in binaries for f in order(binary, tmp_path)]
    assert len(functions) == len(early.kernels)
    for function in functions:
        assert function[:2] == [WAIT, TRIGGER]
        assert (function.count(WAIT), function.count(TRIGGER)) == (1, 1)
        assert len(function) > 2
    assert artefact.launch.count("dependent") == len(early.kernels)
    assert "false" not in re.findall(r"dependent\W+(\w+)", artefact.launch)


@pytest.mark.parametrize(("backend", "workload", "fixed"), KINDS)
def test_the_text_of_an_early_launch_differs_in_that_alone(
    backend: Backend, workload: Workload, fixed: dict[str, object]
) -> None:
    usual = program(backend, workload, fixed)
    texts = [backend.render(each, "", H200) for each in (usual, usual.launched_early)]
    lines = [[x for x in s.splitlines() if not re.match(r"#|//|.*(gdc_|griddepcontrol)", x)] for s in texts]
    # What no other kernel writes may be read before the wait, which such a kernel must not.
    one, other = (re.sub(r"__restrict__ |\s+", "", " ".join(each)) for each in lines)
    assert one == other
    assert "__restrict__" not in texts[1].split('extern "C"', 1)[-1]


def test_kernels_that_run_once_for_a_constant_are_launched_as_ever() -> None:
    value = Tile("value", ("r",), (8,))
    place = (Slice(Affine.of(), 8, "r"),)
    copies = [
        Kernel(name, Grid(()), (Load(value, source, place), Store(to, place, "value")))
        for name, source, to in (("prepare", "weight", "relaid"), ("call", "relaid", "out"))
    ]
    roles = {"weight": "input", "out": "output", "relaid": "workspace"}
    buffers = tuple(Buffer(name, (8,), "float32", role) for name, role in roles.items())
    early = TileProgram("copied", buffers, tuple(copies), prepared=(("relaid", "weight"),)).launched_early
    assert [k.launch for k in early.kernels] == [Launch(), Launch(dependent=True, triggering=True)]


@needs_nvrtc
def test_older_gpus_have_no_such_wait() -> None:
    early = program(CUDA, ROWS, {}).launched_early
    with pytest.raises(CompileError, match=r"requires \.target sm_90"):
        CUDA.compile(CUDA.render(early, "", A100), early, A100)
