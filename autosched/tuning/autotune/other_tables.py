"""Others' measurements of a user's kernel (Triton's own autotuner's, Helion's, a colleague's), as history."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from autosched.strategies.bayesian import History
from search_spaces import InputError
from search_spaces.schedules.plain_space import PlainSpace
from tuning_logs import OwnKernel
from tuning_logs.exchange.files import read_tables
from tuning_logs.exchange.recorded_table import RecordedTable


def tables_of_kernel(paths: Sequence[Path], kernel: str) -> list[RecordedTable]:
    """The tables of the files; of a tuning log, those of kernels of that name.

    Raises:
        LogError: one cannot be read, or is no recorded table.
    """
    return [table for path in paths for table in read_tables(path) if _is_of(table, kernel)]


def _is_of(table: RecordedTable, kernel: str) -> bool:
    """True if a table may be of the kernel: only tables from tuning logs name theirs."""
    if table.origin is None:
        return True
    subject = table.origin.subject
    return isinstance(subject, OwnKernel) and subject.name == kernel


def told_elsewhere(tables: Sequence[RecordedTable], space: PlainSpace) -> list[History]:
    """The tables as history of a search of the space, with a warning if something is left out.

    Raises:
        InputError: one lacks a knob.
    """
    found = []
    for table in tables:
        try:
            there = table.fitted_to(space)
        except InputError as error:
            raise InputError(f"history= {table.label}: {error}") from None
        for remark in there.remarks:
            warnings.warn(f"history= {table.label}: {remark}", stacklevel=2)
        found.append(History(table.device, there.points, there.seconds))
    return found
