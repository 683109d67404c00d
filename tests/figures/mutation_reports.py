"""A plug-in of pytest: which test began when, and which failed, a line each as it happens."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

# Where the lines go.
REPORTS = "MUTATION_REPORTS"


def _write(*words: str) -> None:
    with Path(os.environ[REPORTS]).open("a", encoding="utf-8") as file:
        file.write("\t".join(words) + "\n")


def pytest_runtest_logstart(nodeid: str) -> None:
    _write("began", str(time.time()), nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _write("failed", "", report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _write("failed", "", report.nodeid)
