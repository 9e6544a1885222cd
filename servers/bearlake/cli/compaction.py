"""`bearlake compaction`: what waits for compaction, which tasks there are, and a way to try one again."""

import click

from bearlake.cli.admin_client import AdminClient, admin_options
from bearlake.cli.command_group import CommandGroup
from bearlake.cli.completion import stream_names
from bearlake.cli.draining import drain
from bearlake.cli.output import counted, json_option, print_json, print_table, printable, say


@click.group(cls=CommandGroup)
def compaction() -> None:
    """Inspect compaction, which writes records into tables."""


@compaction.command()
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Number of streams to show.")
@admin_options
@json_option
def backlog(limit: int, admin: AdminClient, as_json: bool) -> int:
    """Show the records that wait for compaction, largest stream first."""
    found = admin.call("GET", "/v1/compaction/backlog", limit=limit)
    if as_json:
        print_json(found)
        return 0
    if not found["record_count"]:
        say("nothing waits")
        return 0
    waiting = f"{counted(found['record_count'], 'record')} of {counted(found['stream_count'], 'stream')}"
    say(f"{waiting}, {counted(found['size_bytes'], 'byte')}; the oldest has waited for {found['age_ms'] / 1000:.1f} s")
    if found["streams"]:
        columns = {
            "stream": "STREAM",
            "size_bytes": "BYTES",
            "record_count": "RECORDS",
            "partition_count": "PARTITIONS",
            "age_ms": "AGE MS",
        }
        print_table(found["streams"], columns)
    return 0


@compaction.command()
@click.option("--stream", metavar="NAME", shell_complete=stream_names, help="Show only the tasks of this stream.")
@admin_options
@json_option
def tasks(stream: str | None, admin: AdminClient, as_json: bool) -> int:
    """List tasks with their states; quarantined tasks with their errors."""
    found = list(admin.pages("/v1/compaction/tasks", "tasks", stream=stream))
    if as_json:
        print_json(found)
        return 0
    columns = {
        "id": "TASK",
        "kind": "KIND",
        "stream": "STREAM",
        "state": "STATE",
        "size_bytes": "BYTES",
        "record_count": "RECORDS",
        "age_ms": "AGE MS",
        "attempt_count": "FAILED",
        "node_id": "NODE",
        "error": "ERROR",
    }
    print_table(found, columns)
    return 0


@compaction.command()
@click.argument("task", type=click.IntRange(1))
@admin_options
@json_option
def retry(task: int, admin: AdminClient, as_json: bool) -> int:
    """Retry a quarantined task."""
    found = admin.call("POST", f"/v1/compaction/tasks/{task}/retry")
    if as_json:
        print_json(found)
    else:
        say(f"task {task} of {printable(str(found['stream']))}: waiting")
    return 0


compaction.add_command(drain)
