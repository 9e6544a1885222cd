"""`bearlake stream`: create, list, describe, alter and delete streams through the admin API."""

import datetime
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import click

from bearlake.cli.admin_client import AdminClient, admin_options
from bearlake.cli.command_group import CommandGroup
from bearlake.cli.completion import stream_names
from bearlake.cli.output import json_option, print_json, print_table, printable, say
from bearlake.cli.results import report
from bearlake.errors import Invalid

NAMES = click.argument("names", nargs=-1, required=True, metavar="NAME...")
KNOWN_NAMES = click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=stream_names)


@click.group(cls=CommandGroup)
def stream() -> None:
    """Create, list, describe, alter and delete streams."""


@stream.command()
@NAMES
@click.option(
    "--partitions", type=click.IntRange(1), default=1, show_default=True, help="Number of partitions of each stream."
)
@click.option(
    "--set", "configs", multiple=True, metavar="KEY=VALUE", help="Topic config, such as retention.ms=3600000."
)
@click.option("--if-not-exists", is_flag=True, help="Succeed if a stream already exists.")
@admin_options
@json_option
def create(
    names: Sequence[str],
    partitions: int,
    configs: Sequence[str],
    if_not_exists: bool,
    admin: AdminClient,
    as_json: bool,
) -> int:
    """Create streams."""
    items = [{"name": name, "partition_count": partitions, "configs": _pairs(configs)} for name in names]
    answer = admin.call("POST", "/v1/streams", {"streams": items})
    return report(answer["results"], "created", as_json, fine=(409,) if if_not_exists else ())


@stream.command("list")
@click.option("--prefix", default="", help="Show only streams with this prefix.")
@admin_options
@json_option
def list_streams(prefix: str, admin: AdminClient, as_json: bool) -> int:
    """List streams by name."""
    streams = list(admin.pages("/v1/streams", "streams", prefix=prefix or None))
    if as_json:
        print_json(streams)
    else:
        columns = {"name": "NAME", "partition_count": "PARTITIONS", "configs": "CONFIGS", "id": "ID"}
        print_table(streams, columns)
    return 0


@stream.command()
@click.argument("name", shell_complete=stream_names)
@admin_options
@json_option
def describe(name: str, admin: AdminClient, as_json: bool) -> int:
    """Show one stream with the offsets and sizes of its partitions."""
    client = admin
    path = f"/v1/streams/{quote(name, safe='')}"
    found = client.call("GET", path)
    partitions = list(client.pages(f"{path}/partitions", "partitions"))
    if as_json:
        print_json({**found, "partitions": partitions})
        return 0
    created = datetime.datetime.fromtimestamp(found["created_ms"] / 1000, datetime.UTC)
    say(f"{found['name']}  id {found['id']}, created {created:%Y-%m-%d %H:%M:%S} UTC", is_bold=True)
    for key, value in found["configs"].items():
        say(f"  {printable(key)} = {printable(value)}")
    columns = {
        "partition": "PARTITION",
        "start_offset": "START",
        "compacted_offset": "COMPACTED",
        "end_offset": "END",
        "size_bytes": "BYTES",
    }
    print_table(partitions, columns)
    return 0


@stream.command()
@KNOWN_NAMES
@click.option("--partitions", type=click.IntRange(1), help="Increase the number of partitions to this number.")
@click.option("--set", "configs", multiple=True, metavar="KEY=VALUE", help="Set a topic config.")
@click.option("--unset", multiple=True, metavar="KEY", help="Reset a topic config to its default.")
@admin_options
@json_option
def alter(
    names: Sequence[str],
    partitions: int | None,
    configs: Sequence[str],
    unset: Sequence[str],
    admin: AdminClient,
    as_json: bool,
) -> int:
    """Change configs of streams, or add partitions."""
    if partitions is None and not configs and not unset:
        raise click.UsageError("nothing to change: pass --set, --unset or --partitions")
    change: dict[str, Any] = {"set": _pairs(configs), "unset": list(unset)}
    if partitions is not None:
        change["partition_count"] = partitions
    items = [{"name": name, **change} for name in names]
    answer = admin.call("PATCH", "/v1/streams", {"streams": items})
    return report(answer["results"], "altered", as_json)


@stream.command()
@KNOWN_NAMES
@click.option("--if-exists", is_flag=True, help="Succeed if a stream does not exist.")
@admin_options
@json_option
def delete(names: Sequence[str], if_exists: bool, admin: AdminClient, as_json: bool) -> int:
    """Delete streams and their records."""
    answer = admin.call("DELETE", "/v1/streams", name=list(names))
    return report(answer["results"], "deleted", as_json, fine=(404,) if if_exists else ())


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise Invalid(f"--set {text}: expected KEY=VALUE")
        pairs[key] = value
    return pairs
