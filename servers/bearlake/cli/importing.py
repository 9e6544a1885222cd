"""`bearlake import`: topics of another cluster; `kafka` is here, `pulsar` in `importing_pulsar.py`."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any, TypeVar

import click

from bearlake.cli.command_group import CommandGroup
from bearlake.cli.copies import check_verify, exit_code, say_compared, say_ended
from bearlake.cli.extras import run_async, server_module
from bearlake.cli.importing_pulsar import pulsar
from bearlake.cli.kafka_options import address
from bearlake.cli.lake_options import chosen, lake_options
from bearlake.cli.output import json_option, print_json, print_table, printable, say
from bearlake.cli.progress import Progress

COLUMNS = {
    "topic": "TOPIC",
    "partition": "PARTITION",
    "start_offset": "START",
    "end_offset": "END",
    "source_offset": "SOURCE END",
    "lag": "LAG",
}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
F = TypeVar("F", bound=Callable[..., Any])


@click.group(name="import", cls=CommandGroup)
def import_() -> None:
    """Copy topics of a Kafka or Pulsar cluster into streams.

    Topics of Kafka keep their offsets, topics of Pulsar their subscriptions.
    """


import_.add_command(pulsar)


def source_options(peer: str) -> Callable[[F], F]:
    """How the other cluster is reached: TLS and login. Each option is a setting of `imports.source` or `exports.target`."""

    def decorated(command: F) -> F:
        for option in (
            click.option(
                "--tls-ca-file", metavar="FILE", help="Authorities of the brokers' certificates (PEM); means TLS."
            ),
            click.option("--tls", is_flag=True, default=None, help=f"Connect to the {peer} with TLS."),
            click.option("--password-file", metavar="FILE", help="File with that user's password."),
            click.option("--user", metavar="NAME", help=f"User at the {peer}."),
            click.option("--mechanism", type=click.Choice(MECHANISMS), help=f"How to log in at the {peer}."),
        ):
            command = option(command)
        return command

    return decorated


@import_.command()
@click.option(
    "--from",
    "bootstrap",
    required=True,
    metavar="HOST:PORT",
    callback=address,
    help="Brokers of the source, with commas.",
)
@click.option(
    "--topics",
    "patterns",
    multiple=True,
    required=True,
    metavar="REGEX",
    help="Whole names of topics; may be repeated.",
)
@click.option("--follow", is_flag=True, help="Go on with new records and topics until interrupted.")
@click.option("--bytes-per-s", type=click.IntRange(0), help="Limit of the speed  [default: none].")
@click.option("--verify", is_flag=True, help="Then compare all records with the source; reads both once more.")
@click.option(
    "--access-rules", is_flag=True, help="Copy the access rules of topics, groups and transactional ids, too."
)
@click.option("--registry", metavar="URL", default="", help="Copy the schemas of this registry, too, with their ids.")
@source_options("source")
@click.option("--admin-port", type=click.IntRange(0, 65535), help="Serve health and metrics on this port.")
@lake_options
@json_option
def kafka(
    bootstrap: str,
    patterns: tuple[str, ...],
    follow: bool,
    verify: bool,
    access_rules: bool,
    registry: str,
    admin_port: int | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Copy topics of a Kafka cluster: offsets, timestamps, headers, batches, transactions, topic configs and group offsets.

    It may be interrupted and started again at any time. The streams take no other records until `bearlake import promote`.

    \b
    bearlake import kafka --from kafka:9092 --topics 'orders.*' --follow
    """
    check_verify(follow=follow, verify=verify)
    module = server_module("bearlake.app.importing")
    options = module.ImportOptions(
        bootstrap=bootstrap,
        patterns=patterns,
        follow=follow,
        verify=verify,
        access_rules=access_rules,
        registry=registry,
        admin_port=admin_port,
    )
    settings = chosen(given, extra="kafka", more=_settings(given))
    line = Progress("imported", "bytes", is_quiet=as_json)
    found = run_async(module.import_topics(settings, options, lambda now: _show(line, now)))
    line.clear()
    if as_json:
        print_json(_as_json(found))
    else:
        _print(found)
    return exit_code(found)


def _as_json(found: Any) -> dict[str, object]:  # bearlake.app.importing.Imported, which is imported late
    access = found.access
    return {
        "copied_bytes": found.progress.copied_bytes,
        "lag": found.progress.lag,
        "partitions": list(found.progress.partitions),
        "left_configs": dict(found.left_configs),
        "groups": list(found.groups),
        "refused_groups": dict(found.refused_groups),
        "ended": dict(found.ended),
        "access": access
        and {
            "rule_count": len(access.rules),
            "left": access.left,
            "users": [dict(zip(("user", "mechanism", "iterations"), user, strict=True)) for user in access.users],
        },
        "schemas": found.schemas and asdict(found.schemas),
        "compared": [asdict(item) for item in found.compared],
    }


def _print(found: Any) -> None:
    print_table(found.progress.partitions, COLUMNS)
    for topic, names in found.left_configs.items():
        say(f"{printable(topic)}: configs that cannot be used here: {printable(', '.join(names))}", is_error=True)
    if found.groups:
        say(f"offsets of {len(found.groups):,} consumer groups")
    for group, reason in found.refused_groups.items():
        say(f"group {printable(group)}: {printable(reason)}", is_error=True)
    if found.access is not None:
        say(f"{len(found.access.rules):,} access rules")
        for text in found.access.left:
            say(f"rule not copied: {printable(text)}", is_error=True)
        for user, mechanism, _ in found.access.users:
            say(f"user {printable(user)} ({mechanism}) needs a password here: no cluster shows it", is_error=True)
    if found.schemas is not None:
        say(f"{found.schemas.registered:,} versions of schemas; {found.schemas.present:,} were here already")
        for name, reason in found.schemas.refused.items():
            say(f"schema {printable(name)}: {printable(reason)}", is_error=True)
    say_compared(found.compared)
    say_ended(found.ended, "copied")


@import_.command()
@click.argument("streams", nargs=-1, required=True)
@lake_options
@json_option
def promote(streams: tuple[str, ...], as_json: bool, **given: Any) -> int:
    """Let everybody append to imported streams. Their import ends; it cannot be continued.

    Promotes none of them if a name is wrong. Repeat the command if it was interrupted.

    \b
    bearlake import promote orders
    bearlake import promote persistent://acme/prod/orders
    """
    module = server_module("bearlake.app.importing")
    done: list[dict[str, Any]] = []

    def show(stream: Any) -> None:  # bearlake.importing.promotion.Promoted, which is imported late
        done.append(asdict(stream))
        if not as_json:
            result = "promoted" if stream.source else "nothing to do, it is not being imported"
            say(f"{printable(stream.name)}: {result}")

    try:
        run_async(module.promote(chosen(given, extra="kafka"), streams, show))
    except BaseException:
        if as_json and done:
            with suppress(OSError):  # the first error is the command's
                print_json(done)
        raise
    if as_json:
        print_json(done)
    return 0


def _settings(given: Mapping[str, Any]) -> dict[str, tuple[object, str]]:
    """Return the settings that this command's own options name."""
    places = {
        "bytes_per_s": ("imports.copy.bytes_per_s", "--bytes-per-s"),
        "mechanism": ("imports.source.mechanism", "--mechanism"),
        "user": ("imports.source.user", "--user"),
        "password_file": ("imports.source.password_file", "--password-file"),
        "tls_ca_file": ("imports.source.tls_ca_file", "--tls-ca-file"),
    }
    found = {path: (given[key], option) for key, (path, option) in places.items() if given[key] is not None}
    if given["tls"] or given["tls_ca_file"]:
        found["imports.source.tls"] = (True, "--tls")
    return found


def _show(line: Progress, now: Any) -> None:  # bearlake.app.copying.Progress, which is imported late
    at = [row["end_offset"] for row in now.partitions]
    left = now.lag
    line.show(now.copied_bytes, sum(at) / (sum(at) + left) if at and sum(at) + left else None)
