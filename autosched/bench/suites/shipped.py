"""The suites that come with the package, by name: `--suite gemm` is `gemm.json` beside this module."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent
SHIPPED_SUITES = tuple(sorted(path.stem for path in _FOLDER.glob("*.json")))


def suite_path(given: Path) -> Path:
    """The file of a shipped suite where it is named and no file is called so; else what was given."""
    return _FOLDER / f"{given}.json" if str(given) in SHIPPED_SUITES and not given.is_file() else given
