"""The files of recorded tables: the format is detected by content. Any of them may be compressed (gzip)."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any, Literal

from search_spaces import LogError
from tuning_logs.exchange.helion_csv import read_helion_csv
from tuning_logs.exchange.kernel_tuner import kernel_tuner_text, read_kernel_tuner
from tuning_logs.exchange.own_logs import tables_of
from tuning_logs.exchange.recorded_table import RecordedTable
from tuning_logs.exchange.t4 import read_t4, t4_text
from tuning_logs.exchange.triton_cache import read_triton_cache
from tuning_logs.log import TuningLog
from tuning_logs.packing import replace_file

# Formats that are written.
Format = Literal["kernel-tuner", "t4"]

_TRITON_SUFFIX = ".autotune.json"
_MAGIC = b"\x1f\x8b"
_EXPECTED = (
    "expected a Kernel Tuner cache, a T4 results file, a tuning log of autosched, an *.autotune.json of Triton, or the "
    "CSV log of Helion's autotuner"
)


def read_tables(path: Path) -> list[RecordedTable]:
    """The tables of a file: one, or one for each kernel of a log.

    Raises:
        LogError: it cannot be read, is torn, of another version, or none of these; the message says which.
    """
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if content.startswith(_MAGIC) else content).decode()
    except (OSError, EOFError, zlib.error) as error:
        raise LogError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    except UnicodeDecodeError as error:
        raise LogError(f"{path}: {_EXPECTED}; got no text ({error.reason} at byte {error.start})") from None
    try:
        return _tables(path, text)
    except ValueError as error:
        raise LogError(f"{path}: {error}") from None


def _tables(path: Path, text: str) -> list[RecordedTable]:
    if text.lstrip().startswith('{"schema":'):
        return list(tables_of(TuningLog(path)))
    if not text.lstrip().startswith("{"):
        return read_helion_csv(text, _details(path)) if "config" in text.partition("\n")[0] else _refuse(text)
    data = _parsed(text)
    if "cache" in data:
        return [read_kernel_tuner(data)]
    if "results" in data:
        return [read_t4(data)]
    if "configs_timings" in data:
        return [read_triton_cache(data, path.name.removesuffix(".gz").removesuffix(_TRITON_SUFFIX))]
    return _refuse(text)


def _details(path: Path) -> str:
    """The file that Helion writes next to its log, if configured to."""
    details = path.with_suffix(".meta.jsonl")
    try:
        return details.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _refuse(text: str) -> list[RecordedTable]:
    raise ValueError(f"{_EXPECTED}; got {text.strip()[:60]!r}")


def _parsed(text: str) -> dict[str, Any]:
    """The object of a JSON text, including a cache that Kernel Tuner has left open."""
    try:
        data: dict[str, Any] = json.loads(text)
        return data
    except RecursionError:
        return {}
    except ValueError as error:
        try:
            left_open: dict[str, Any] = json.loads(text.rstrip().removesuffix(",") + "}}")
        except ValueError:
            last = text.rstrip().rpartition("\n")[2]
            raise ValueError(f"torn: expected JSON to its end ({error}); it ends in {last[-60:]!r}") from None
        if "cache" not in left_open:
            raise ValueError(f"torn: expected JSON to its end ({error})") from None
        return left_open


def write_table(path: Path, table: RecordedTable, format: Format) -> None:
    """Replace the file by the table, compressed where the name ends in .gz: all of it, or nothing.

    Raises:
        LogError: it cannot be written, and is as it was.
    """
    lines = kernel_tuner_text(table) if format == "kernel-tuner" else t4_text(table)
    content = "".join(lines).encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, gzip.compress(content, mtime=0) if path.name.endswith(".gz") else content)
    except OSError as error:
        raise LogError(f"cannot write {path}: {error.strerror or error}; it is as it was") from error
