"""Options and fixtures that several tests share."""

from __future__ import annotations

import os

# Threads of BLAS and OpenMP spin while they wait for each other, as workers that share cores mostly do.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import gc
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from autosched.backends.gpu.arguments import Arguments, arguments
from autosched.backends.triton.printer import function_name
from fake_kernels import time_instantly
from scheduled_tensors import given_back, seen, taken_by_name
from search_spaces import TileProgram, Workload
from search_spaces.programs.tile_program import Buffer

# A busy machine is no failure.
settings.register_profile("unhurried", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

_HERE = Path(__file__).parent
# What a backend prints.
_SUFFIXES = {"cuda": ".cu", "triton": ".py", "llvm": ".ll", "standalone": ".py"}


# Files that take longest, and those that mostly wait: begun first, so that no worker is left with one at the end.
_FIRST = (
    "test_cluster.py",
    "test_killed_tuner.py",
    "test_gluon_printer.py",
    "test_session.py",
    "test_anchors.py",
    "test_tracing.py",
    "test_gluon_walks.py",
    "test_quality.py",
    "test_column_reductions.py",
    "test_dtypes.py",
    "test_llvm_schedules.py",
    "test_documentation.py",
    "test_contraction_axes.py",
    "test_triton_backend.py",
    "test_log_crashes.py",
    "test_layouts.py",
    "test_random_programs.py",
    "test_op_db.py",
    "test_validity.py",
    "test_window_gradients.py",
)


def pytest_configure(config: pytest.Config) -> None:
    # What is imported and collected stays: looking through it takes a quarter of that time.
    gc.disable()
    # pytest-xdist begins with the files that have most tests, unless it is told to keep the order.
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {name: number for number, name in enumerate(_FIRST)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))


# New objects between two collections of garbage: Python's default, 700, takes a tenth of the time of tests that trace.
_OBJECTS_PER_COLLECTION = 50_000


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(_OBJECTS_PER_COLLECTION)
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-goldens",
        action="store_true",
        help="rewrite the printed kernels under tests/goldens instead of comparing with them",
    )


@pytest.fixture(autouse=True, scope="session")
def _user_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder of their own for what is kept of a user, such as which kernels were checked."""
    before = os.environ.get("XDG_DATA_HOME")
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data"))
    yield
    if before is None:
        del os.environ["XDG_DATA_HOME"]
    else:
        os.environ["XDG_DATA_HOME"] = before


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A tuning log that is not there yet."""
    return tmp_path / "log.jsonl"


@pytest.fixture
def instant_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up kernels take as long as their configurations say, and are timed in no time."""
    time_instantly(monkeypatch)


@pytest.fixture
def check_golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with `goldens/<folder>/<test name>`; `pytest --update-goldens` rewrites the files."""

    def check(folder: str, text: str) -> None:
        name = request.node.name.removeprefix("test_").replace("[", "-").replace("]", "")
        path = _HERE / "goldens" / folder / f"{name}{_SUFFIXES[folder]}"
        if request.config.getoption("--update-goldens"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"no golden {path.name}; write it with: pytest --update-goldens {request.node.nodeid}"
        assert text == path.read_text(encoding="utf-8"), f"{path.name} differs; see pytest --update-goldens"

    return check


class TritonInterpreter:
    """A process in which Triton interprets kernels on the CPU (it has to be told before Triton is imported).

    Use float32 and float16 only: Triton's interpreter computes bfloat16 wrongly.
    """

    def __init__(self) -> None:
        paths = os.pathsep.join([str(_HERE.parent), *filter(None, sys.path)])
        self._process = subprocess.Popen(
            [sys.executable, str(_HERE / "support" / "on_cpu" / "triton_interpreter_worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": paths},
        )

    def run(self, source: str, program: TileProgram, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        """The output of a program, interpreted from its printed source."""
        (output,) = self.run_all(source, program, inputs)
        return output

    def run_all(self, source: str, program: TileProgram, inputs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        """All outputs of a program, in order."""
        buffers = {b.name: _in_memory(b, inputs.get(b.name)) for b in program.buffers}
        for name in program.zeroed:
            buffers[name] = np.zeros_like(buffers[name])
        kernels = [
            (function_name(k), k.grid.programs, [b.name for b in taken.pointers], _descriptors(taken))
            for k in program.kernels
            for taken in [arguments(program, k)]
        ]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump((source, kernels, buffers), self._process.stdin)
        self._process.stdin.flush()
        result = pickle.load(self._process.stdout)
        if isinstance(result, str):
            raise AssertionError(f"{result}\nin\n{source}")
        return tuple(seen(result[b.name].view(b.dtype), b) for b in program.buffers if b.role == "output")

    def computed(
        self, source: str, workload: Workload, program: TileProgram, inputs: Sequence[Any]
    ) -> tuple[np.ndarray, ...]:
        """The outputs of the workload that the source of one of its programs computes of these inputs of its own."""
        made = self.run_all(source, program, taken_by_name(workload, program, inputs))
        return given_back(workload, program, made)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)


def _in_memory(buffer: Buffer, values: np.ndarray | None) -> np.ndarray:
    """The memory of a buffer with these values, and others where nothing is written, if the type has one for that.

    Booleans are the bytes that kernels take them to be.
    """
    dtype = buffer.dtype if values is None else values.dtype
    memory = np.full(buffer.span, np.nan if np.issubdtype(dtype, np.floating) else 1, dtype)
    if values is not None:
        seen(memory, buffer)[...] = values
    return memory.view(np.int8) if memory.dtype == np.bool_ else memory


def _descriptors(taken: Arguments) -> list[tuple[str, list[int], list[int], list[int]]]:
    """Buffer, shape, strides and block of every descriptor of a kernel."""
    return [(d.buffer.name, list(d.shape), list(d.strides), list(d.block)) for d in taken.descriptors]


@pytest.fixture(scope="session")
def triton_interpreter() -> Iterator[TritonInterpreter]:
    interpreter = TritonInterpreter()
    yield interpreter
    interpreter.close()
