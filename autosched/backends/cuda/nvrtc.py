"""CUDA C++ to cubins by NVRTC: without nvcc, headers, a driver or a GPU.

Several may be installed: by wheels, with PyTorch, with a toolkit. Each reports its architectures, and the newest with
the wanted one compiles; CUDA 12 has the last with Volta. All serve one process. `ctypes` releases Python's lock while
they compile.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autosched.backends.backend import CompileError

# Instructions of Hopper only. They exist only in an architecture with "a", whose code runs on no other device, older or
# newer (PTX ISA, ".target").
_HOPPER, _OF_HOPPER = 90, ("wgmma.", "setmaxnreg.")
# CUDA 13 no longer compiles for these (its release notes, "deprecated features").
_VOLTA = (70, 72)
# By the folder in their wheels.
_LIBRARIES = {"libnvrtc.so.13": "cu13", "libnvrtc.so.12": "cuda_nvrtc"}
_INSTALL = 'pip install -e ".[cuda]"'
_INSTALL_VOLTA = 'pip install -e ".[volta]"'
# Name of the text in its messages. Always the same: it may go into the cubin.
_FILE_NAME = b"kernel.cu"
_REASON_LENGTH = 300
_SUCCESS = 0


@dataclass(frozen=True)
class Compiled:
    """The binary of one architecture with all kernels of a text, the PTX that it was assembled from, and remarks."""

    cubin: bytes
    ptx: bytes
    log: str


def architecture(text: str, capability: int) -> str:
    """Compilers' name of the architecture of a text: sm_90, and sm_90a if it has Hopper's own instructions."""
    own = capability == _HOPPER and any(x in text for x in _OF_HOPPER)
    return f"sm_{capability}{'a' * own}"


def compile_text(text: str, capability: int) -> Compiled:
    """Compile CUDA C++ for devices of a compute capability, 70 for 7.0.

    Raises:
        CompileError: there is no NVRTC for them, or it refused the text; the message is its first error.
    """
    if reason := why_unavailable(capability):
        raise CompileError(reason)
    return _library_for(capability).compile(text, architecture(text, capability))


def why_unavailable(capability: int) -> str | None:
    """Reason that no compiler here supports such devices, with the command that mends it; or None."""
    if any(capability in library.capabilities for library in _libraries()):
        return None
    install = _INSTALL_VOLTA if capability in _VOLTA else _INSTALL
    here = "; ".join(
        f"NVRTC {library.version} has no sm_{capability}, but {_ranges(library.capabilities)}"
        for library in _libraries()
    )
    return f"{here or 'NVRTC, which compiles CUDA C++, is not installed'}; expected one with it: {install}"


def version_for(capability: int) -> str:
    """The version of the NVRTC that compiles for such devices, "13.0"; "" if none does."""
    return "" if why_unavailable(capability) else _library_for(capability).version


class Library:
    """One libnvrtc (NVRTC documentation, "User Interface")."""

    def __init__(self, functions: ctypes.CDLL) -> None:
        self._functions = functions
        major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        known = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", known)
        self.version = f"{major.value}.{minor.value}"
        self.capabilities = tuple(known)

    def compile(self, text: str, architecture: str) -> Compiled:
        """Compile the text. Raises CompileError with the compiler's first error."""
        program = ctypes.c_void_p()
        self._call("nvrtcCreateProgram", ctypes.byref(program), text.encode(), _FILE_NAME, 0, None, None)
        try:
            options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17"]
            status = self._functions.nvrtcCompileProgram(
                program, len(options), (ctypes.c_char_p * len(options))(*options)
            )
            log = self._read("ProgramLog", program).decode(errors="replace").rstrip("\0\n")
            if status != _SUCCESS:
                raise CompileError(first_error(log) or self._name(status))
            return Compiled(self._read("CUBIN", program), self._read("PTX", program), log)
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _read(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        content = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, content)
        return content.raw

    def _call(self, function: str, *arguments: object) -> None:
        status = getattr(self._functions, function)(*arguments)
        if status != _SUCCESS:
            raise CompileError(f"{function}: {self._name(status)}")

    def _name(self, status: int) -> str:
        self._functions.nvrtcGetErrorString.restype = ctypes.c_char_p
        return str(self._functions.nvrtcGetErrorString(status).decode())


def first_error(log: str) -> str:
    """The first line of a log that reports an error, in the compiler's own words; "" if none does."""
    lines = (" ".join(line.split()) for line in log.splitlines())
    return next((line for line in lines if "error" in line or "fatal" in line), "")[:_REASON_LENGTH]


def _library_for(capability: int) -> Library:
    return next(library for library in _libraries() if capability in library.capabilities)


# Loading them takes 30 ms, and the installed ones stay the same as long as a process lives.
@functools.cache
def _libraries() -> tuple[Library, ...]:
    """One of every version found, the newest first."""
    found: dict[tuple[int, ...], Library] = {}
    for functions in _loaded():
        library = Library(functions)
        found.setdefault(tuple(map(int, library.version.split("."))), library)
    return tuple(found[version] for version in sorted(found, reverse=True))


def _loaded() -> Iterator[ctypes.CDLL]:
    """The library that cuda-bindings finds, which may be of either major version, and all others of each."""
    try:
        from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
    except ImportError:
        pass
    else:
        with contextlib.suppress(DynamicLibNotFoundError, OSError):
            yield ctypes.CDLL(load_nvidia_dynamic_lib("nvrtc").abs_path)
    if sys.platform != "linux":
        return
    for name, folder in _LIBRARIES.items():
        for path in _places(name, folder):
            with contextlib.suppress(OSError):
                # Its own functions before those of the same name that another library has exported globally.
                yield ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND)
                break


def _places(name: str, folder: str) -> Iterator[str]:
    """Places of a library: in wheels, on the system's search path, and in a toolkit's default folder."""
    for root in sys.path:
        path = Path(root, "nvidia", folder, "lib", name)
        if path.is_file():
            yield str(path)
    yield name
    yield str(Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "lib64", name))


def _ranges(capabilities: tuple[int, ...]) -> str:
    return f"sm_{min(capabilities)} to sm_{max(capabilities)}"
