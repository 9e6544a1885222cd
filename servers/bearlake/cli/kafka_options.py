"""Options that `produce` and `consume` share, and how they report an outage."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from bearlake.cli.output import say

F = TypeVar("F", bound=Callable[..., Any])


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
