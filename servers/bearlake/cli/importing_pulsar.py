"""`bearlake import pulsar`: topics of a Pulsar cluster, with the positions of their subscriptions."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from bearlake.cli.copies import check_verify, exit_code, say_compared, say_ended
from bearlake.cli.extras import run_async, server_module
from bearlake.cli.lake_options import chosen, lake_options
from bearlake.cli.output import json_option, print_json, print_table, printable, say
from bearlake.cli.progress import Progress

COLUMNS = {
    "topic": "STREAM",
    "partition": "PARTITION",
    "start_offset": "START",
    "end_offset": "END",
    "copied_through": "COPIED THROUGH",
    "source_last": "SOURCE LAST",
    "lag": "LAG",
}
_PLACES = {
    "bytes_per_s": ("imports.copy.bytes_per_s", "--bytes-per-s"),
    "token_file": ("imports.pulsar.token_file", "--token-file"),
    "tls_ca_file": ("imports.pulsar.tls_ca_file", "--tls-ca-file"),
}


@click.command()
@click.option(
    "--from", "url", required=True, metavar="URL", help="Brokers of the source: pulsar://HOST:PORT or pulsar+ssl://…"
)
@click.option("--admin", "admin_url", required=True, metavar="URL", help="The source's HTTP API: http://… or https://…")
@click.option(
    "--topics",
    "patterns",
    multiple=True,
    required=True,
    metavar="PATTERN",
    help="persistent://TENANT/NAMESPACE/REGEX: whole names of topics, without partitions; may be repeated.",
)
@click.option("--follow", is_flag=True, help="Go on with new messages and topics until interrupted.")
@click.option("--bytes-per-s", type=click.IntRange(0), help="Limit of the speed  [default: none].")
@click.option("--verify", is_flag=True, help="Then compare all messages with the source; reads both once more.")
@click.option("--token-file", metavar="FILE", help="File with the token by which the import logs in.")
@click.option("--tls-ca-file", metavar="FILE", help="Authorities of the brokers' certificates (PEM).")
@click.option("--admin-port", type=click.IntRange(0, 65535), help="Serve health and metrics on this port.")
@lake_options
@json_option
def pulsar(
    url: str,
    admin_url: str,
    patterns: tuple[str, ...],
    follow: bool,
    verify: bool,
    admin_port: int | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Copy topics of a Pulsar cluster: messages in their batches, keys, properties, times, schemas, and subscriptions' positions.

    It may be interrupted and started again at any time. The streams take no other records until `bearlake import promote`.

    \b
    bearlake import pulsar --from pulsar://pulsar:6650 --admin http://pulsar:8080 --topics 'persistent://public/default/orders.*' --follow
    """
    check_verify(follow=follow, verify=verify)
    module = server_module("bearlake.app.importing_pulsar")
    options = module.PulsarImportOptions(
        url=url,
        admin_url=admin_url,
        patterns=patterns,
        follow=follow,
        verify=verify,
        admin_port=admin_port,
    )
    settings = chosen(given, extra="pulsar", more=_settings(given))
    line = Progress("imported", "bytes", is_quiet=as_json)
    found = run_async(module.import_topics(settings, options, lambda now: line.show(now.copied_bytes, None)))
    line.clear()
    if as_json:
        print_json(_as_json(found))
    else:
        _print(found)
    return 1 if found.gone else exit_code(found)


def _as_json(found: Any) -> dict[str, object]:  # bearlake.app.importing_pulsar.PulsarImported, which is imported late
    return {
        "copied_bytes": found.progress.copied_bytes,
        "lag": found.progress.lag,
        "partitions": list(found.progress.partitions),
        "subscriptions": list(found.subscriptions),
        "refused_subscriptions": dict(found.refused_subscriptions),
        "gone": dict(found.gone),
        "ended": dict(found.ended),
        "schemas": dict(found.schemas),
        "refused_schemas": dict(found.refused_schemas),
        "loosened": list(found.loosened),
        "compared": [asdict(item) for item in found.compared],
    }


def _print(found: Any) -> None:
    print_table(found.progress.partitions, COLUMNS)
    for topic, count in found.gone.items():
        say(f"{printable(topic)}: the source let go of {count:,} entries before they were copied", is_error=True)
    if found.subscriptions:
        say(f"positions of {len(found.subscriptions):,} subscriptions")
    for name, reason in found.refused_subscriptions.items():
        say(f"subscription {printable(name)}: {printable(reason)}", is_error=True)
    for topic, count in found.schemas.items():
        say(f"{printable(topic)}: {count:,} versions of its schema")
    for name, reason in found.refused_schemas.items():
        say(f"schema {printable(name)}: {printable(reason)}", is_error=True)
    for subject in found.loosened:
        say(f"{printable(subject)}: its compatibility is NONE now: the source has versions that are not compatible")
    say_compared(found.compared)
    say_ended(found.ended, "copied")


def _settings(given: Mapping[str, Any]) -> dict[str, tuple[object, str]]:
    """Return the settings that this command's own options name."""
    return {path: (given[key], option) for key, (path, option) in _PLACES.items() if given[key] is not None}
