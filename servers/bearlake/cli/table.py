"""`bearlake table`: the Iceberg table of a stream, as its catalog has it now."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import click

from bearlake.cli.command_group import CommandGroup
from bearlake.cli.completion import stream_names
from bearlake.cli.extras import run_async, server_module
from bearlake.cli.lake_options import chosen, lake_options
from bearlake.cli.output import counted, json_option, print_json, print_table, printable, say

BAR_WIDTH = 40
SIZES = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))


@click.group(cls=CommandGroup)
def table() -> None:
    """Inspect the tables of streams."""


@table.command()
@click.argument("stream", shell_complete=stream_names)
@click.option("--timeline", is_flag=True, help="Show the work of compaction per minute, as bars.")
@click.option(
    "--snapshots", type=click.IntRange(0), default=5, show_default=True, help="Number of newest snapshots to list."
)
@lake_options
@json_option
def describe(stream: str, timeline: bool, snapshots: int, as_json: bool, **given: Any) -> int:
    """Show a stream's table: files, rows, sizes, lag and freshness per partition, snapshots."""
    lake = server_module("bearlake.app.lake", extra="sql")
    found = run_async(lake.describe(chosen(given), stream))
    if as_json:
        print_json(found)
        return 0
    _print_head(found)
    print_table(
        found["partitions"],
        {
            "partition": "PARTITION",
            "start_offset": "START",
            "table_offset": "IN TABLE",
            "compacted_offset": "COMPACTED",
            "end_offset": "END",
            "lag": "LAG",
        },
    )
    if timeline:
        _print_timeline(found["snapshots"])
    elif snapshots and found["snapshots"]:
        _print_snapshots(found["snapshots"][-snapshots:])
    return 0


@table.command()
@click.argument("stream", shell_complete=stream_names)
@lake_options
@json_option
def errors(stream: str, as_json: bool, **given: Any) -> int:
    """Show which records have no typed columns, by code, each with its newest record."""
    lake = server_module("bearlake.app.lake", extra="sql")
    found = [
        {**row, "newest": row["newest"].isoformat(timespec="milliseconds")}
        for row in run_async(lake.value_errors(chosen(given), stream))
    ]
    if as_json:
        print_json(found)
    elif not found:
        say("every value in the table has its typed columns, or the stream has no schema")
    else:
        print_table(
            [{**row, "example": printable(row["example"])} for row in found],
            {
                "code": "CODE",
                "record_count": "RECORDS",
                "partition": "PARTITION",
                "offset": "OFFSET",
                "newest": "NEWEST",
                "example": "EXAMPLE",
            },
        )
    return 0


def _print_head(found: Mapping[str, Any]) -> None:
    say(f"{found['stream']}  table {found['table']}", is_bold=True)
    say(f"  {printable(found['location'])}")
    files, rows = found["file_count"], found["row_count"]
    mean = f", {_size(found['size_bytes'] / files)} each on average" if files > 1 else ""
    say(f"  {counted(rows, 'row')} in {counted(files, 'file')}, {_size(found['size_bytes'])}{mean}")
    say(
        f"  not in the table yet: {counted(found['lag'], 'record')}, the oldest committed {found['freshness_ms'] / 1000:.1f} s ago"
        if found["lag"]
        else "  every committed record is in the table"
    )
    say(f"  {counted(len(found['snapshots']), 'snapshot')}, {counted(found['manifest_count'], 'manifest')}")
    if found["current"] is not None:
        _print_current(found["current"])
    say("")


def _print_current(found: Mapping[str, Any]) -> None:
    if found["table"] is None:
        say("  the current table will be made by a compaction worker")
        return
    size = f"{counted(found['row_count'], 'key')}, {_size(found['size_bytes'])}"
    lag = f"behind the table by {counted(found['lag'], 'record')}" if found["lag"] else "up to date with the table"
    say(f"  current table {found['table']}: {size}; {lag}")


def _print_snapshots(snapshots: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        {**snapshot, "time": _clock(snapshot["timestamp_ms"], "%Y-%m-%d %H:%M:%S")} for snapshot in reversed(snapshots)
    ]
    columns = {
        "time": "SNAPSHOT (UTC)",
        "operation": "OPERATION",
        "added_files": "FILES +",
        "deleted_files": "FILES -",
        "added_rows": "ROWS +",
    }
    say("")
    print_table(rows, columns)


def _print_timeline(snapshots: Sequence[Mapping[str, Any]]) -> None:
    """One line per minute: rows that became visible as a bar, commits, files added and merged away."""
    minutes: dict[int, list[Mapping[str, Any]]] = {}
    for snapshot in snapshots:
        minutes.setdefault(snapshot["timestamp_ms"] // 60_000, []).append(snapshot)
    appended = {minute: _rows(committed) for minute, committed in minutes.items()}
    most = max(appended.values(), default=0) or 1
    say("\nMINUTE (UTC)  COMMITS  FILES +  FILES -        ROWS +", is_bold=True)
    for minute, committed in sorted(minutes.items()):
        bar = "█" * round(BAR_WIDTH * appended[minute] / most)
        added, deleted = (
            sum(snapshot["added_files"] for snapshot in committed),
            sum(snapshot["deleted_files"] for snapshot in committed),
        )
        head = f"{_clock(minute * 60_000, '%m-%d %H:%M'):<12}  {len(committed):7,}  {added:7,}  {deleted:7,}"
        say(f"{head}  {appended[minute]:12,}  {bar}".rstrip())


def _rows(snapshots: Sequence[Mapping[str, Any]]) -> int:
    """Rows that the snapshots brought; a merge brings none that was not there."""
    return sum(snapshot["added_rows"] for snapshot in snapshots if snapshot["operation"] == "append")


def _clock(milliseconds: int, form: str) -> str:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC).strftime(form)


def _size(size: float) -> str:
    for unit, name in SIZES:
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size:,.0f} bytes"
