"""`bearlake compaction drain`: waits until the records that are committed now are in their tables."""

import time
from collections.abc import Mapping, Sequence
from urllib.parse import quote

import click

from bearlake.cli.admin_client import AdminClient, admin_options
from bearlake.cli.completion import stream_names
from bearlake.cli.output import json_option, print_json, printable, say
from bearlake.cli.progress import Progress
from bearlake.errors import NotFound, Unavailable

POLL_S = 0.5
STREAM_COUNT_MAX = 1_000
"""Streams with a backlog that are waited for; the largest ones, if there are more."""


@click.command()
@click.argument("names", nargs=-1, metavar="[STREAM...]", shell_complete=stream_names)
@click.option(
    "--timeout-ms", type=click.IntRange(1), default=600_000, show_default=True, help="Longest wait; then exit with 3."
)
@admin_options
@json_option
def drain(names: Sequence[str], timeout_ms: int, admin: AdminClient, as_json: bool) -> int:
    """Wait until the records that are committed now are in their tables, of these streams or of all.

    Records that are written meanwhile are not waited for.
    """
    start = time.monotonic()
    streams = list(dict.fromkeys(names)) or _waiting(admin)
    targets = {(name, row["partition"]): row["end_offset"] for name in streams for row in _partitions(admin, name)}
    progress = Progress("compacted")
    first = left = _left(admin, targets)
    while left:
        if time.monotonic() - start > timeout_ms / 1000:
            progress.clear()
            raise Unavailable(
                f"{left:,} of {first:,} records are not in their tables after {timeout_ms / 1000:g} s. Is a compaction worker running"
                " (bearlake server list)? Is a task quarantined (bearlake compaction tasks)? Does a transaction hang"
                " (bearlake transaction list)?"
            )
        time.sleep(POLL_S)
        left = _left(admin, targets)
        progress.show(first - left, (first - left) / first)
    progress.end(first)
    seconds = time.monotonic() - start
    if as_json:
        print_json({"streams": streams, "record_count": first, "seconds": round(seconds, 3)})
    else:
        what = printable(", ".join(streams)) if names else "all streams"
        say(f"{what}: {first:,} records were compacted within {seconds:.1f} s" if first else f"{what}: nothing waits")
    return 0


def _waiting(admin: AdminClient) -> list[str]:
    found = admin.call("GET", "/v1/compaction/backlog", limit=STREAM_COUNT_MAX)["streams"]
    return [row["stream"] for row in found if row["stream"] is not None]


def _partitions(admin: AdminClient, name: str) -> Sequence[Mapping[str, int]]:
    return list(admin.pages(f"/v1/streams/{quote(name, safe='')}/partitions", "partitions"))


def _left(admin: AdminClient, targets: dict[tuple[str, int], int]) -> int:
    """Return the number of records that are not compacted.

    `targets` has the end to reach by stream and partition; partitions that are done are removed.
    """
    left = 0
    for name in {name for name, _ in targets}:
        try:
            rows = _partitions(admin, name)
        except NotFound:  # deleted meanwhile
            rows = []
            for gone in [key for key in targets if key[0] == name]:
                del targets[gone]
        for row in rows:
            end = targets.get((name, row["partition"]))
            if end is None:
                continue
            missing = end - max(row["compacted_offset"], row["start_offset"])
            if missing > 0:
                left += missing
            else:
                del targets[name, row["partition"]]
    return left
