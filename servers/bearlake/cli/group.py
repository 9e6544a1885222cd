"""`bearlake group`: consumer groups, share groups and Pulsar subscriptions, by the REST API: their lag, a reset of offsets, a deletion."""

import time
from typing import Any

import click

from bearlake.cli import group_positions
from bearlake.cli.command_group import CommandGroup
from bearlake.cli.completion import rest_group_names, rest_stream_names
from bearlake.cli.output import json_option, print_json, print_table, printable, say
from bearlake.cli.rest_client import RestClient, rest_options
from bearlake.cli.results import report
from bearlake.errors import Invalid

_GROUP = {"group": "GROUP", "type": "TYPE", "state": "STATE"}
_LAGS = {"lag": "LAG", "lag_s": "LAG S"}
_TOTAL = {"members": "MEMBERS", **_LAGS}
_POSITION = {"stream": "STREAM", "partition": "PARTITION", "offset": "OFFSET", "end_offset": "END"}
_LAG = {"lag": "LAG", "lag_s": "LAG S", "client_id": "CLIENT"}
_MEMBER = {"member": "MEMBER", "client_id": "CLIENT", "instance_id": "INSTANCE", "host": "HOST"}
_MOVE = {
    "stream": "STREAM",
    "partition": "PARTITION",
    "offset": "OFFSET",
    "new_offset": "NEW OFFSET",
    "lag": "LAG",
    "new_lag": "NEW LAG",
}


@click.group(cls=CommandGroup)
def group() -> None:
    """Show groups and their lag; reset their offsets; delete them.

    Groups are consumer groups, share groups and Pulsar subscriptions.
    """


@group.command("list")
@click.option(
    "--no-lag", "is_quick", is_flag=True, help="Only names, types and states: one request instead of one per group."
)
@rest_options
@json_option
def list_groups(is_quick: bool, rest: RestClient, as_json: bool) -> int:
    """List consumer groups, share groups and Pulsar subscriptions (STREAM/SUBSCRIPTION) with their lag.

    The lag is in records, and in seconds: the age of the next record to read in the partition that is furthest behind.
    """
    groups = group_positions.all_groups(rest)
    found = [listed.shown for listed in groups]
    if not is_quick:
        group_positions.add_lags(rest, groups, found, int(time.time() * 1000))
    if as_json:
        print_json(found)
    else:
        print_table(found, _GROUP if is_quick else {**_GROUP, **_LAGS})
    return 0


@group.command()
@click.argument("name", metavar="GROUP", shell_complete=rest_group_names)
@rest_options
@json_option
def describe(name: str, rest: RestClient, as_json: bool) -> int:
    """Show a group's members, and its lag by partition.

    The lag is in records, and in seconds: the age of the next record to read. The seconds are known where you may read, in the 20
    partitions with the largest lag.
    """
    found = group_positions.find(rest, name)
    members = group_positions.members(rest, found)
    rows = group_positions.positions(rest, found)
    group_positions.add_ages(rest, rows, int(time.time() * 1000))
    if as_json:
        print_json({**found.shown, **_total(rows), "members": members, "positions": rows})
        return 0
    print_table(
        [{**found.shown, **_total(rows), "members": None if members is None else len(members)}], {**_GROUP, **_TOTAL}
    )
    if rows:
        say("")
        print_table(rows, {**_POSITION, **_LAG})
    if members:
        say("")
        print_table(members, _MEMBER)
    return 0


def _total(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the lag of all partitions: the sum in records, the largest in seconds; None: unknown."""
    ages = [row["lag_s"] for row in rows if row["lag_s"] is not None]
    return {"lag": sum(row["lag"] or 0 for row in rows), "lag_s": max(ages, default=None)}


def _targets(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return [word for word in group_positions.TARGETS if word.startswith(incomplete)]


@group.command()
@click.argument("name", metavar="GROUP", shell_complete=rest_group_names)
@click.option("--stream", required=True, help="Stream whose offsets move.", shell_complete=rest_stream_names)
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(0),
    multiple=True,
    metavar="N",
    help="Partition; may be repeated  [default: all].",
)
@click.option(
    "--to",
    required=True,
    metavar="TARGET",
    help="earliest, latest, offset:N, time:T (ms since 1970, or ISO 8601) or, for consumer groups, shift:N.",
    shell_complete=_targets,
)
@click.option("--execute", "is_real", is_flag=True, help="Move the offsets; without it, only show what would move.")
@rest_options
@json_option
def reset(
    name: str,
    stream: str,
    partitions: tuple[int, ...],
    to: str,
    is_real: bool,
    rest: RestClient,
    as_json: bool,
) -> int:
    """Move a group's offsets in a stream, or show what would move.

    A consumer group or share group must have no members; a share group must have offsets in the stream. The consumers of a Pulsar
    subscription (STREAM/SUBSCRIPTION) go on at its new position. Offsets stay between the first record and the end.
    """
    target = group_positions.target(to)
    found = group_positions.find(rest, name)
    if target["to"] == "shift" and found.type in ("share", group_positions.PULSAR):
        raise Invalid("--to shift:N: share groups and Pulsar subscriptions have no shift; use offset:N")
    if found.type == group_positions.PULSAR and not found.name.startswith(f"{stream}/"):
        raise Invalid(f"--stream {stream}: {name} is a subscription of another stream")
    moves = group_positions.reset(rest, found, stream, partitions, target, is_real=is_real)
    if as_json:
        print_json({**found.shown, "is_executed": is_real, "moves": moves})
        return 0
    print_table(moves, _MOVE)
    if not is_real:
        say("Nothing has moved. To move the offsets, repeat the command with --execute.", is_error=True)
        if found.state not in ("empty", "dead", ""):
            say(f"{printable(name)} has members: stop its consumers first.", is_error=True)
    return 0


@group.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...", shell_complete=rest_group_names)
@click.option("--if-exists", is_flag=True, help="Succeed if a group does not exist.")
@rest_options
@json_option
def delete(names: tuple[str, ...], if_exists: bool, rest: RestClient, as_json: bool) -> int:
    """Delete consumer groups and share groups, and their offsets.

    A group must have no members. A Pulsar subscription is deleted by its clients, or by pulsar-admin topics unsubscribe.
    """
    results = [group_positions.delete(rest, name) for name in names]
    return report(results, "deleted", as_json, fine=(404,) if if_exists else ())
