"""Triton's backend with real kernels that double their input, or go wrong in the way that the program's name says.

Worker processes import it by name: the tests put its folder on the module path.
"""

from __future__ import annotations

import dataclasses
import json

from autosched.backends.backend import Artefact, Launcher
from autosched.backends.triton.backend import TritonBackend
from search_spaces import Axis, Schedule, Stage, Target, Tensor, TileProgram, Workload
from search_spaces.programs.grid import Grid, GridAxis
from search_spaces.programs.statements import Load, Store
from search_spaces.programs.tile_program import Buffer, Kernel
from search_spaces.programs.tiles import Slice, Tile
from search_spaces.workloads.expressions import expression as ex
from search_spaces.workloads.expressions.affine import Affine, axis_index

LOCATION = "faulty_triton_backend:create"
ELEMENTS = 2**20
_BLOCK = 1024
# Elements to an address that nothing lies at: 4 TiB lower.
_FAR = 2**40
# More than any device has.
_HUGE_BYTES = 2**44

# What a kernel does -> its statements after `x = tl.load(x_ptr + offsets)`, where `y_ptr + offsets` is to be 2 x.
_WRITE = "tl.store(y_ptr + offsets, x + x)\n"
_STATEMENTS = {
    "does not compile": "tl.store(y_ptr + tl.arange(0, 1000), x)",
    "keeps the compiler busy": "for i in tl.static_range(100000000):\n    x = x * 1.5 + i\n" + _WRITE,
    "reads an illegal address": f"tl.store(y_ptr + offsets, tl.load(x_ptr + offsets - {_FAR}))",
    "writes to an illegal address": f"tl.store(y_ptr + offsets - {_FAR}, x + x)",
    "runs forever": f"while tl.load(x_ptr, volatile=True) < 1e30:\n    {_WRITE}",
    "computes something else": "tl.store(y_ptr + offsets, x * 2.002)",
    "yields NaN": f'tl.store(y_ptr + offsets, tl.where(offsets == {ELEMENTS - 1}, float("nan"), x + x))',
    "yields infinity": f'tl.store(y_ptr + offsets, tl.where(offsets == {ELEMENTS - 1}, float("inf"), x + x))',
    "reads past its input": (
        f"beyond = tl.load(x_ptr + offsets + {ELEMENTS}, mask=offsets < {_BLOCK}, other=0.0)\n"
        "tl.store(y_ptr + offsets, x + x + beyond * 1e-30)"
    ),
    "leaves the end unwritten": f"tl.store(y_ptr + offsets, x + x, mask=offsets < {ELEMENTS - 3})",
    "writes past its output": f"{_WRITE}tl.store(y_ptr + offsets + {ELEMENTS}, x, mask=offsets < {_BLOCK})",
    "writes before its output": f"{_WRITE}tl.store(y_ptr + offsets - {_BLOCK}, x, mask=offsets < {_BLOCK})",
    "writes past its input": f"{_WRITE}tl.store(x_ptr + offsets + {ELEMENTS}, x, mask=offsets < {_BLOCK})",
    "changes its input": f"{_WRITE}tl.store(x_ptr + offsets, x + 1.0)",
}
# The status that it must get, and a part of the reason.
FAULTS = {
    "does not compile": ("compile_error", "power of 2"),
    "keeps the compiler busy": ("compile_timeout", "killed after"),
    "needs too much shared memory": ("load_error", "bytes of shared memory"),
    "is for another architecture": ("load_error", "CUDA_ERROR_NO_BINARY_FOR_GPU"),
    "wants a huge workspace": ("out_of_memory", f"{_HUGE_BYTES} bytes of device memory"),
    "reads an illegal address": ("run_error", "illegal memory access"),
    "writes to an illegal address": ("run_error", "illegal memory access"),
    "runs forever": ("run_timeout", "killed after"),
    "computes something else": ("wrong_result", f"of {ELEMENTS} elements are wrong"),
    "yields NaN": ("not_finite", f"1 of {ELEMENTS} elements are NaN or infinite; the first, [{ELEMENTS - 1}], is nan"),
    "yields infinity": ("not_finite", f"the first, [{ELEMENTS - 1}], is inf"),
    "reads past its input": ("out_of_bounds_read", "right with zeros around the inputs: it reads outside them"),
    "leaves the end unwritten": ("unwritten_output", f"3 of {ELEMENTS} elements were not written"),
    "writes past its output": ("out_of_bounds_write", f"outside its output: after it ({_BLOCK} elements"),
    "writes before its output": ("out_of_bounds_write", f"outside its output: before it ({_BLOCK} elements"),
    "writes past its input": ("out_of_bounds_write", f"outside x: after it ({_BLOCK} elements"),
    "changes its input": ("changed_input", "changed its input x"),
}


def doubling() -> Workload:
    """y[i] = x[i] + x[i]."""
    x = ex.Access("x", (axis_index("i"),))
    return Workload(
        "doubling", (Tensor("x", (ELEMENTS,), "float32"),), (Stage("y", (Axis("i", ELEMENTS),), ex.add(x, x)),)
    )


def schedule(behaviour: str) -> Schedule:
    """A schedule whose kernel behaves like that; "is fine:<number>" is right, with a binary of its own."""
    program = _program(behaviour)
    return Schedule(behaviour, (), lowering=lambda _: program, backend=FaultyTritonBackend.name)


def create(target: Target) -> tuple[FaultyTritonBackend]:
    return (FaultyTritonBackend(),)


class FaultyTritonBackend:
    """Prints the kernel that the program is named after; compiles and loads it as Triton's backend does."""

    name = "triton"
    limits = TritonBackend.limits

    def serves(self, target: Target) -> bool:
        return self._triton.serves(target)

    def why_unavailable(self, target: Target) -> str | None:
        return None

    def __init__(self) -> None:
        self._triton = TritonBackend()

    def render(self, program: TileProgram, comment: str, target: Target) -> str:
        behaviour, _, number = program.name.partition(":")
        right = f"tl.store(y_ptr + offsets, x + x, mask=offsets < {ELEMENTS + int(number or 0)})"
        lines = [
            f"# {comment}",
            "import triton",
            "import triton.language as tl",
            "",
            "",
            "@triton.jit",
            "def doubling(x_ptr, y_ptr):",
            f"    offsets = tl.program_id(0).to(tl.int64) * {_BLOCK} + tl.arange(0, {_BLOCK})",
            "    x = tl.load(x_ptr + offsets)",
            *(f"    {line}" for line in _STATEMENTS.get(behaviour, right).splitlines()),
            "",
        ]
        return "\n".join(lines)

    def compile(self, source: str, program: TileProgram, target: Target) -> Artefact:
        if program.name == "is for another architecture":
            target = dataclasses.replace(target, capability=90 if target.capability < 90 else 80)
        artefact = self._triton.compile(source, program, target)
        if program.name == "needs too much shared memory":
            # The compile facts do not say so, or the candidate would not be run at all.
            (kernel,) = json.loads(artefact.launch)
            artefact = dataclasses.replace(artefact, launch=json.dumps([{**kernel, "shared_bytes": 2**20}]))
        return artefact

    def load(self, artefact: Artefact, program: TileProgram) -> Launcher:
        return self._triton.load(artefact, program)


def _program(behaviour: str) -> TileProgram:
    """The program whose text `render` replaces: it says which buffers there are, and how the kernel is launched."""
    tile, here = Tile("x", ("i",), (_BLOCK,)), (Slice(Affine.of(("i.0", _BLOCK)), _BLOCK, "i"),)
    grid = Grid((GridAxis("i.0", ELEMENTS // _BLOCK),))
    kernel = Kernel("doubling", grid, (Load(tile, "x", here), Store("y", here, "x")))
    buffers = [Buffer("x", (ELEMENTS,), "float32", "input"), Buffer("y", (ELEMENTS,), "float32", "output")]
    if behaviour == "wants a huge workspace":
        buffers.append(Buffer("huge", (_HUGE_BYTES // 4,), "float32", "workspace"))
    return TileProgram(behaviour, tuple(buffers), (kernel,))
