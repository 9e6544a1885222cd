"""`bearlake import`: topics of another Kafka-compatible cluster, with the same offsets."""

from typing import Any

import click

from bearlake.cli.extras import run_async, server_module
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
BYTES_PER_MB = 1_000_000


@click.group(name="import")
def import_() -> None:
    """Bring topics of another cluster here, with the same offsets."""


@import_.command()
@click.option("--from", "bootstrap", required=True, metavar="HOST:PORT", help="A broker of the source.")
@click.option(
    "--topics",
    "patterns",
    multiple=True,
    required=True,
    metavar="REGEX",
    help="Whole names of topics; may be repeated.",
)
@click.option("--follow", is_flag=True, help="Go on with new records until interrupted.")
@click.option(
    "--megabytes-per-second", type=click.FloatRange(0), default=0, help="Limit of the speed  [default: none]."
)
@lake_options
@json_option
def kafka(
    bootstrap: str, patterns: tuple[str, ...], follow: bool, megabytes_per_second: float, as_json: bool, **given: Any
) -> int:
    """Copy topics of a Kafka cluster: offsets, timestamps, headers, batches, transactions, topic configs and group offsets.

    It may be interrupted and started again at any time. The streams take no other records until `bearlake import promote`.

    \b
    bearlake import kafka --from kafka:9092 --topics 'orders.*' --follow
    """
    module = server_module("bearlake.app.importing")
    options = module.ImportOptions(
        bootstrap=bootstrap,
        patterns=patterns,
        follow=follow,
        bytes_per_s=round(megabytes_per_second * BYTES_PER_MB),
    )
    line = Progress("imported", "bytes", is_quiet=as_json)
    found = run_async(module.import_topics(chosen(given, extra="kafka"), options, lambda now: _show(line, now)))
    line.clear()
    if as_json:
        print_json(
            {
                "copied_bytes": found.progress.copied_bytes,
                "lag": found.progress.lag,
                "partitions": list(found.progress.partitions),
                "left_configs": dict(found.left_configs),
                "groups": list(found.groups),
                "refused_groups": dict(found.refused_groups),
            }
        )
        return 0
    print_table(found.progress.partitions, COLUMNS)
    for topic, names in found.left_configs.items():
        say(f"{topic}: configs that cannot be used here: {', '.join(names)}", is_error=True)
    if found.groups:
        say(f"offsets of {len(found.groups):,} consumer groups")
    for group, reason in found.refused_groups.items():
        say(f"group {printable(group)}: {reason}", is_error=True)
    return 0


@import_.command()
@click.argument("streams", nargs=-1, required=True)
@lake_options
def promote(streams: tuple[str, ...], **given: Any) -> int:
    """Let everybody append to imported streams. Their import ends; it cannot be continued."""
    module = server_module("bearlake.app.importing")
    run_async(module.promote(chosen(given, extra="kafka"), streams))
    for name in streams:
        say(f"{name}: promoted")
    return 0


def _show(line: Progress, now: Any) -> None:  # bearlake.app.importing.Progress, which is imported late
    at = [row["end_offset"] for row in now.partitions]
    left = now.lag
    line.show(now.copied_bytes, sum(at) / (sum(at) + left) if at and sum(at) + left else None)
