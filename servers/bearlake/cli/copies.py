"""What the commands that copy topics have in common: `bearlake import kafka`, `import pulsar`, `export kafka`."""

from collections.abc import Iterable, Mapping
from typing import Any

import click

from bearlake.cli.output import printable, say


def check_verify(*, follow: bool, verify: bool) -> None:
    """Raise `click.UsageError` for both."""
    if follow and verify:
        raise click.UsageError(
            "--verify compares at the end, and --follow has none: run the command again without --follow"
        )


def exit_code(found: Any) -> int:  # the result of a copy, whose module is imported late
    """Return 1 if a topic could not be copied to the end, or if the comparison has found a difference."""
    return 1 if found.ended or any(item.different for item in found.compared) else 0


def say_compared(compared: Iterable[Any]) -> None:  # bearlake.importing.verifying.Compared, which is imported late
    """Print the comparison of each partition."""
    for item in compared:
        where = f"{printable(item.topic)}, partition {item.partition}, offsets {item.start} to {item.end}"
        counts = f"{item.same_batches:,} batches with the same bytes, {item.same_records:,} records of other batches"
        say(f"{where}: {counts}, {item.missing:,} records on one side only, {item.different:,} differences")
        for text in item.shown:
            say(f"  {printable(text)}", is_error=True)


def say_ended(ended: Mapping[str, str], done: str) -> None:
    """Print the topics that could not be copied to the end. `done`: "copied", or the word of the command."""
    for topic, reason in ended.items():
        say(f"{printable(topic)}: not {done} to the end: {printable(reason)}", is_error=True)
