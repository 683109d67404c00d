"""`python -I` without the time that importing PyTorch and Triton takes: a fork of a process that has imported them.

Every job is a process of its own, to which neither PYTHONPATH nor the working directory leads. As a script: reads lines
of JSON, what stands after `python -I`, and answers each with exit status, standard output and standard error.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from typing import NoReturn


class _Server:
    """The process that forks, in which Triton interprets and no GPU is seen."""

    def __init__(self) -> None:
        environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(arguments), file=self._process.stdin, flush=True)
        return subprocess.CompletedProcess([*arguments], *json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)


@functools.cache
def _server() -> _Server:
    """The one of all tests of this process: it takes seconds to start."""
    server = _Server()
    atexit.register(server.close)
    return server


def isolated(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `python -I` with these arguments."""
    return _server().run(*arguments)


def _serve() -> None:
    import torch  # noqa: F401  # what forks of this process then have
    import triton.language  # noqa: F401  # the same

    for line in sys.stdin:
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            child = os.fork()
            if child == 0:
                os.dup2(output.fileno(), 1)
                os.dup2(errors.fileno(), 2)
                _run(json.loads(line))
            _, status = os.waitpid(child, 0)
            texts = [file.read() for file in (output, errors) if file.seek(0) == 0]
            print(json.dumps([os.waitstatus_to_exitcode(status), *texts]), flush=True)


def _run(arguments: list[str]) -> NoReturn:
    """The program of a command line, in this process, which ends with it."""
    code: str | int | None = 0
    try:
        if arguments[0] == "-c":
            sys.argv = ["-c", *arguments[2:]]
            exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = arguments
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as ending:
        code = ending.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    _serve()
