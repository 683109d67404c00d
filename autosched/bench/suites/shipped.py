"""The suites that come with the package, by name: `--suite gemm` is `gemm.json` in this folder."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent
SHIPPED_SUITES = tuple(sorted(path.stem for path in _FOLDER.glob("*.json")))


def suite_path(given: Path) -> Path:
    """The file of a shipped suite, if it is named and no file has that name; else the given path."""
    return _FOLDER / f"{given}.json" if str(given) in SHIPPED_SUITES and not given.is_file() else given
