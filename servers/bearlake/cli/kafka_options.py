"""Options that `produce` and `consume` share, and the progress that they show."""

import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from bearlake.cli.output import say

F = TypeVar("F", bound=Callable[..., Any])

PROGRESS_INTERVAL_S = 0.5


def bootstrap_option(command: F) -> F:
    """The option `--bootstrap`."""
    return click.option(
        "--bootstrap",
        "-b",
        envvar="BEARLAKE_BOOTSTRAP",
        default="127.0.0.1:9092",
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT",
        help="Kafka address of any server.",
    )(command)


def client_option(command: F) -> F:
    """The option `-X`: settings of the Kafka client, by librdkafka's names."""
    return click.option(
        "-X", "client_settings", multiple=True, metavar="KEY=VALUE", help="Setting of the client (librdkafka's names)."
    )(command)


def as_client_settings(texts: tuple[str, ...]) -> dict[str, str]:
    """Parse `KEY=VALUE` arguments into a dictionary. Raises `click.UsageError`."""
    pairs = [text.partition("=") for text in texts]
    for key, equals, _ in pairs:
        if not equals:
            raise click.UsageError(f"-X {key}: expected KEY=VALUE")
    return {key: value for key, _, value in pairs}


class Outage:
    """An `error_cb` that reports on standard error that no server answers: once, and once more after records have flowed again."""

    def __init__(self, code: int, bootstrap: str) -> None:
        """`code` is the client's error code for "all brokers are down"."""
        self._code = code
        self._bootstrap = bootstrap
        self.is_on = False

    def __call__(self, error: Any) -> None:
        """Called by the client library, from inside a poll."""
        if error.code() == self._code and not self.is_on:
            self.is_on = True
            say(
                f"bearlake: no answer from {self._bootstrap}; retrying (set its address with --bootstrap or BEARLAKE_BOOTSTRAP)",
                is_error=True,
            )


class Progress:
    """A counter on standard error, shown only if that is a terminal and the records are not written to a terminal."""

    def __init__(self, verb: str, is_quiet: bool) -> None:
        self._verb = verb
        self._is_shown = sys.stderr.isatty() and not is_quiet
        self._start = self._next = time.monotonic()

    def show(self, count: int) -> None:
        """Show the count, at most twice a second."""
        now = time.monotonic()
        if self._is_shown and now >= self._next:
            self._next = now + PROGRESS_INTERVAL_S
            click.echo(f"\r{self._verb} {count:,} records, {self._rate(count, now):,.0f}/s ", err=True, nl=False)

    def end(self, count: int) -> None:
        """Replace the line by the final count."""
        if self._is_shown:
            rate = self._rate(count, time.monotonic())
            click.echo(f"\r{self._verb} {count:,} records, {rate:,.0f}/s ", err=True)

    def _rate(self, count: int, now: float) -> float:
        return count / max(now - self._start, 1e-3)
