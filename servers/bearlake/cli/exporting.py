"""`bearlake export`: topics to another Kafka-compatible cluster."""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click

from bearlake.cli.command_group import CommandGroup
from bearlake.cli.copies import check_verify, exit_code, say_compared, say_ended
from bearlake.cli.extras import run_async, server_module
from bearlake.cli.importing import MECHANISMS, source_options
from bearlake.cli.kafka_options import address
from bearlake.cli.lake_options import PATH
from bearlake.cli.output import json_option, print_json, print_table, printable, say
from bearlake.cli.progress import Progress

COLUMNS = {
    "topic": "TOPIC",
    "partition": "PARTITION",
    "source_start": "START",
    "source_end": "END",
    "target_start": "TARGET START",
    "target_end": "TARGET END",
    "offsets": "OFFSETS",
    "lag": "LAG",
}
_PLACES = {
    "bytes_per_s": ("copy.bytes_per_s", "--bytes-per-s"),
    "replication_factor": ("target.replication_factor", "--replication-factor"),
    "mechanism": ("target.mechanism", "--mechanism"),
    "user": ("target.user", "--user"),
    "password_file": ("target.password_file", "--password-file"),
    "tls_ca_file": ("target.tls_ca_file", "--tls-ca-file"),
    "from_mechanism": ("source.mechanism", "--from-mechanism"),
    "from_user": ("source.user", "--from-user"),
    "from_password_file": ("source.password_file", "--from-password-file"),
    "from_tls_ca_file": ("source.tls_ca_file", "--from-tls-ca-file"),
}
F = TypeVar("F", bound=Callable[..., Any])


@click.group(cls=CommandGroup)
def export() -> None:
    """Copy streams to topics of a Kafka cluster."""


def _from_options(command: F) -> F:
    """How the deployment is reached: TLS and login. Each option is a setting of `exports.source`."""
    for option in (
        click.option("--from-tls-ca-file", metavar="FILE", help="Authorities of its certificates (PEM); means TLS."),
        click.option("--from-tls", is_flag=True, default=None, help="Connect to the deployment with TLS."),
        click.option("--from-password-file", metavar="FILE", help="File with that user's password."),
        click.option("--from-user", metavar="NAME", help="User at the deployment."),
        click.option("--from-mechanism", type=click.Choice(MECHANISMS), help="How to log in at the deployment."),
    ):
        command = option(command)
    return command


@export.command()
@click.option(
    "--from",
    "source",
    envvar="BEARLAKE_BOOTSTRAP",
    default="127.0.0.1:9092",
    show_default=True,
    show_envvar=True,
    metavar="HOST:PORT",
    callback=address,
    help="Kafka addresses of servers of the deployment, with commas.",
)
@click.option(
    "--to",
    "target",
    required=True,
    metavar="HOST:PORT",
    callback=address,
    help="Brokers of the target, with commas.",
)
@click.option(
    "--topics", "patterns", multiple=True, required=True, metavar="REGEX",
    help="Whole names of topics; may be repeated.",
)  # fmt: skip
@click.option("--follow", is_flag=True, help="Go on with new records and topics until interrupted.")
@click.option("--groups", is_flag=True, help="Move the committed offsets of consumer groups, too.")
@click.option("--verify", is_flag=True, help="Then compare all records of both sides; reads both once more.")
@click.option("--append", "may_append", is_flag=True, help="Also write to topics that have records of somebody else.")
@click.option("--bytes-per-s", type=click.IntRange(0), help="Limit of the speed  [default: none].")
@click.option(
    "--replication-factor", type=click.IntRange(1, 32767),
    help="Replicas of topics that are created  [default: as the target is set].",
)  # fmt: skip
@source_options("target")
@_from_options
@click.option("--config", type=PATH, help="Settings file with the section `exports`.")
@json_option
def kafka(
    source: str,
    target: str,
    patterns: tuple[str, ...],
    follow: bool,
    groups: bool,
    verify: bool,
    may_append: bool,
    config: Path | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Copy topics to a Kafka cluster: keys, values, headers, timestamps, partitions, topic configs; with --groups, group offsets.

    It may be interrupted and started again at any time: the target has each record once. Nobody else may write to these topics
    meanwhile. Offsets are the same if a topic is empty at the target and has no gaps; else the command says how they differ.

    \b
    bearlake export kafka --to kafka:9092 --topics 'orders.*' --groups
    """
    check_verify(follow=follow, verify=verify)
    module = server_module("bearlake.app.exporting")
    options = module.ExportOptions(
        source=source,
        target=target,
        patterns=patterns,
        follow=follow,
        verify=verify,
        groups=groups,
        may_append=may_append,
    )
    settings = module.settings_of(config, os.environ, _settings(given))
    line = Progress("exported", "bytes", is_quiet=as_json)
    found = run_async(module.export_topics(settings, options, lambda now: _show(line, now)))
    line.clear()
    if as_json:
        print_json(_as_json(found))
    else:
        _print(found)
    return exit_code(found)


def _as_json(found: Any) -> dict[str, object]:  # bearlake.app.exporting.Exported, which is imported late
    return {
        "copied_bytes": found.progress.copied_bytes,
        "lag": found.progress.lag,
        "partitions": list(found.progress.partitions),
        "left_configs": dict(found.left_configs),
        "groups": list(found.groups),
        "refused_groups": dict(found.refused_groups),
        "ended": dict(found.ended),
        "compared": [asdict(item) for item in found.compared],
    }


def _print(found: Any) -> None:
    rows = found.progress.partitions
    print_table(rows, COLUMNS)
    if rows and all(row["offsets"] == "same" for row in rows):
        say("offsets at the target are the same")
    for topic, names in found.left_configs.items():
        say(f"{printable(topic)}: configs that the target has not got: {printable(', '.join(names))}", is_error=True)
    if found.groups:
        say(f"offsets of {len(found.groups):,} consumer groups")
    for group, reason in found.refused_groups.items():
        say(f"group {printable(group)}: {printable(reason)}", is_error=True)
    say_compared(found.compared)
    say_ended(found.ended, "exported")


def _settings(given: Mapping[str, Any]) -> dict[str, tuple[object, str]]:
    """Return the settings that this command's own options name."""
    found: dict[str, tuple[object, str]] = {
        f"exports.{path}": (given[key], option) for key, (path, option) in _PLACES.items() if given[key] is not None
    }
    for prefix, side in (("", "target"), ("from_", "source")):
        if given[f"{prefix}tls"] or given[f"{prefix}tls_ca_file"]:
            found[f"exports.{side}.tls"] = (True, f"--{prefix.replace('_', '-')}tls")
    return found


def _show(line: Progress, now: Any) -> None:  # bearlake.app.copying.Progress, which is imported late
    ends = sum(row["source_end"] for row in now.partitions)
    line.show(now.copied_bytes, (ends - now.lag) / ends if ends else None)
