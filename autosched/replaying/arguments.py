"""Checks of arguments that `tune`, `replay` and `compare` share."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from autosched.machine.policies import POLICIES
from search_spaces import InputError, LogError, Workload
from search_spaces.errors import unknown_name
from tuning_logs import TuningLog, user_log_path


def check_workload(op: object) -> None:
    """Raise InputError unless `op` is a workload."""
    if not isinstance(op, Workload):
        raise InputError(
            f"got {type(op).__name__}; expected an operator such as autosched.ops.matmul(512, 512, 512), or a function "
            "as autosched.trace(function, *inputs) gives it"
        )


# Largest seed of random generators, with room for one per batch.
_LARGEST = 2**62


def check_policy(policy: object) -> None:
    """Raise InputError unless `policy` names a timing policy."""
    if policy not in POLICIES:
        raise unknown_name("timing policy", str(policy), POLICIES)


def check_integer(name: str, value: object, least: int) -> None:
    """Raise InputError unless `value` is an integer of at least that, and one of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{name}={value!r}; expected an integer of at least {least}")
    if value > _LARGEST:
        raise InputError(f"{name}={value}; expected an integer of at most {_LARGEST}")


def log_path(log: str | os.PathLike[str] | None) -> Path:
    """The path of a tuning log: as given, with `~` expanded, or the user's when none is given. It need not exist.

    Raises:
        InputError: it is no path.
        LogError: no log can be there, the file there is no log, or it is out of reach; nothing was created.
    """
    if log is None:
        return _possible(user_log_path())
    if not isinstance(log, str | os.PathLike) or not isinstance(os.fspath(log), str):
        raise InputError(f"log={log!r}; expected the path of a tuning log, such as 'tuning.jsonl', or None")
    try:
        return _possible(Path(log).expanduser())
    except RuntimeError as error:
        raise LogError(f"cannot use {str(log)!r} as a tuning log: {error}") from None


def written_log_path(log: str | os.PathLike[str] | None) -> Path:
    """The path of a log to be written: its folder exists, except for the user's, which is made when it is needed.

    Raises:
        InputError, LogError: as `log_path`, or there is no such folder, which may be misspelt.
    """
    path = log_path(log)
    if path != user_log_path() and not path.parent.is_dir():
        raise LogError(f"{path}: there is no folder {path.parent}; expected one that exists")
    return path


def _possible(path: Path) -> Path:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return path
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise LogError(f"cannot use {str(path)!r} as a tuning log: {reason}") from error
    if not stat.S_ISREG(mode):
        raise LogError(f"{path} is no file; expected the path of a tuning log, such as tuning.jsonl")
    # Refused once here; else every line would warn.
    TuningLog(path).check_is_log()
    return path
