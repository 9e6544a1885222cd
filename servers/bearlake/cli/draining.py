"""`bearlake compaction drain`: waits until the records that are committed now are in their tables, and in the current tables."""

import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import click

from bearlake.cli.admin_client import AdminClient, admin_options
from bearlake.cli.completion import stream_names
from bearlake.cli.extras import run_async, server_module
from bearlake.cli.lake_options import chosen, lake_options
from bearlake.cli.output import json_option, print_json, printable, say
from bearlake.cli.progress import Progress
from bearlake.errors import Invalid, NotFound, Unavailable

POLL_S = 0.5
STREAM_COUNT_MAX = 1_000
"""Streams with a backlog that are waited for; the largest ones, if there are more."""
_CURRENT_CONFIG = "table.current"


@click.command()
@click.argument("names", nargs=-1, metavar="[STREAM...]", shell_complete=stream_names)
@click.option(
    "--timeout-ms", type=click.IntRange(1), default=600_000, show_default=True, help="Longest wait; then exit with 3."
)
@admin_options
@lake_options
@json_option
def drain(names: Sequence[str], timeout_ms: int, admin: AdminClient, as_json: bool, **given: Any) -> int:
    """Wait until the records that are committed now are in their tables, of these streams or of all.

    Records that are written meanwhile are not waited for. Current tables (table.current) are waited for if the options name the stores of
    the deployment, as for `bearlake sql`.
    """
    start = time.monotonic()
    streams = list(dict.fromkeys(names)) or _waiting(admin)
    targets = {(name, row["partition"]): row["end_offset"] for name in streams for row in _partitions(admin, name)}
    first = _wait_for_compaction(admin, targets, start, timeout_ms)
    current = _wait_for_current_tables(admin, names, given, start, timeout_ms)
    seconds = time.monotonic() - start
    if as_json:
        found = {"streams": streams, "record_count": first, "current_tables": current, "seconds": round(seconds, 3)}
        print_json(found)
        return 0
    what = printable(", ".join(streams)) if names else "all streams"
    records = "1 record was" if first == 1 else f"{first:,} records were"
    say(f"{what}: {records} compacted within {seconds:.1f} s" if first else f"{what}: nothing waits")
    if current:
        say(f"current tables are up to date: {printable(', '.join(current))}")
    return 0


def _wait_for_compaction(admin: AdminClient, targets: dict[tuple[str, int], int], start: float, timeout_ms: int) -> int:
    """Wait until the offsets below the targets are compacted; return how many records were missing. `start`: of the command."""
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
    return first


def _wait_for_current_tables(
    admin: AdminClient, names: Sequence[str], given: Mapping[str, Any], start: float, timeout_ms: int
) -> list[str]:
    """Wait for the current tables of the streams; return the names of the streams that have one, if the stores are known."""
    rows = _rows(admin, names)
    ids = {row["name"]: row["id"] for row in rows if row["configs"].get(_CURRENT_CONFIG) == "on"}
    if not ids:
        return []
    progress = Progress("waiting for current tables")
    try:
        lag = server_module("bearlake.app.current_lag", extra="sql")
        missing = run_async(
            lag.wait_for_current(
                chosen(given),
                ids,
                timeout_s=max(0.0, timeout_ms / 1000 - (time.monotonic() - start)),
                poll_s=POLL_S,
                show=lambda count: progress.wait(),
            )
        )
    except (Invalid, NotFound) as error:
        say(f"current tables are not waited for: {printable(str(error))}", is_error=True)
        return []
    finally:
        progress.clear()
    if missing:
        behind = ", ".join(f"{name} ({count:,} records)" for name, count in missing.items())
        raise Unavailable(
            f"the current tables of these streams are behind after {timeout_ms / 1000:g} s: {printable(behind)}. Is a compaction worker"
            " running (bearlake server list)? Is table.current.freshness_ms longer than that? The worker's log says why a round fails"
        )
    return list(ids)


def _rows(admin: AdminClient, names: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return the streams of these names, or all; those that were deleted meanwhile are left out."""
    if not names:
        return list(admin.pages("/v1/streams", "streams"))
    found: list[Mapping[str, Any]] = []
    for name in dict.fromkeys(names):
        try:
            found.append(admin.call("GET", f"/v1/streams/{quote(name, safe='')}"))
        except NotFound:
            continue
    return found


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
