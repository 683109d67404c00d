"""`autosched log merge | diff | import`: merges and compares logs, and imports files of other tuners."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from autosched.cli.arguments import LogPath, console
from autosched.replaying.arguments import log_path
from autosched.tuning.terminal import say
from search_spaces import InputError, LogError
from tuning_logs import TuningLog
from tuning_logs.exchange.files import Format, read_tables, write_table
from tuning_logs.exchange.own_logs import records_of, tables_of
from tuning_logs.exchange.recorded_table import RecordedTable
from tuning_logs.several.differences import Difference, differences
from tuning_logs.several.merging import merge, new_to, records_at
from tuning_logs.text import duration_text, ratio_text, records_text, table_lines

# Number of kernels that an error names.
_MOST_NAMED = 8


def merge_command(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG…", help="Logs, or folders of compressed ones.")],
    to: Annotated[Path, typer.Option("--to", "-o", metavar="FILE", help="The log to write, which must be a new one.")],
) -> None:
    """Join logs into a new one: every measurement once, by time. Lines that were torn are left out with a warning.

    ```
    autosched log merge mine.jsonl colleague.jsonl -o both.jsonl
    ```
    """
    done = merge(logs, to)
    say(console(), f"{to}: {records_text(done.records)}, {done.duplicates} duplicates left out")


def diff_command(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="A log, or a folder of compressed ones.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="A log of the same kernels.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show which kernels became slower or faster from one log to another, and what changed meanwhile.

    Compares the best of every kernel, and the median over the schedules that both logs have: if these alone moved,
    driver, compiler or device made the difference, and if the best alone did, the search. A difference counts when the
    repeats show it and it is larger than 4 %, by which sessions differ though nothing has changed.

    ```
    autosched log diff driver-570.jsonl driver-580.jsonl
    ```
    """
    found = differences(records_at(before), records_at(after))
    if as_json:
        typer.echo(json.dumps([difference.to_json() for difference in found]))
        return
    if not found:
        raise InputError(f"{before} and {after} have no kernel in common that was timed in the same way")
    rows = [("kernel", "before", "after", "times", "", "same schedules", "changed"), *map(_row, found)]
    out = console()
    say(out, *table_lines(rows, right=(1, 2)))
    count = Counter(difference.verdict for difference in found)
    say(out, f"{count['slower']} slower, {count['faster']} faster, {count['same']} the same within noise")


def _row(difference: Difference) -> tuple[str, ...]:
    before, after = difference.before, difference.after
    same = "none"
    if difference.same_ratio is not None:
        same = f"{difference.same_schedules}: {ratio_text(difference.same_ratio, difference.same_interval)}"
    return (
        after.subject.label,
        duration_text(before.measurement.latency_s),
        duration_text(after.measurement.latency_s),
        ratio_text(difference.ratio, difference.interval),
        difference.verdict,
        same,
        ", ".join(f"{name} {one} -> {other}" for name, (one, other) in difference.changed.items()),
    )


def import_command(
    tables: Annotated[
        list[Path], typer.Argument(metavar="TABLE…", help="Files that `autosched log export --format` wrote.")
    ],
    log: LogPath = None,
) -> None:
    """Append files of `autosched log export --format` to a log, without the records that it has already.

    Another tuner's kernel cannot become a log.

    ```
    autosched log import matmul.json --log tuning.jsonl
    ```
    """
    found = []
    for path in tables:
        for table in read_tables(path):
            try:
                found += records_of(table)
            except ValueError as error:
                raise LogError(f"{path}: {error}") from None
    into = TuningLog(log_path(log))
    new = into.append_chosen(lambda: new_to(into, found))
    held = f", {len(found) - len(new)} were there already" if len(new) < len(found) else ""
    say(console(), f"{into.path}: {records_text(len(new))} more{held}")


def export_table(log: TuningLog, to: Path, format: Format, target: str | None, kernel: str | None) -> None:
    """Write one kernel of a log as another tuner would have recorded it.

    Raises:
        InputError: none of the kernels matches, or several do.
    """
    matching = [table for table in tables_of(log) if _is_meant(table, target, kernel)]
    if len(matching) != 1:
        raise InputError(
            f"{log.path} holds {_held(matching or list(tables_of(log)))}; expected --kernel, and --target "
            f"where it was tuned for several, to name one; nothing was written"
        )
    write_table(to, matching[0], format)
    say(console(), f"{matching[0].label}: {len(matching[0].trials)} configurations  {to}")


def _is_meant(table: RecordedTable, target: str | None, kernel: str | None) -> bool:
    assert table.origin is not None
    device = table.origin.target
    named = target is None or target.lower() in (device.name.lower(), device.device.lower())
    return named and (kernel is None or kernel in (table.origin.subject.key, table.kernel) or kernel in table.kernel)


def _held(tables: Sequence[RecordedTable]) -> str:
    names = [f"{table.label} ({table.origin.subject.key})" for table in tables if table.origin]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more or "no record"
