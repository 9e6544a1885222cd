"""Options that `produce` and `consume` share, and how they report an outage."""

import re
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

import click

from bearlake.cli.output import NOTICE_S, say
from bearlake.errors import Denied

F = TypeVar("F", bound=Callable[..., Any])

SCHEMES = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
"""What librdkafka takes before an address."""
HTTP_SIZE = "Invalid response size 1213486160"
"""librdkafka's reason when an answer begins with `HTTP`, which it reads as a size."""
UNREACHABLE = ("Connect to ", "Failed to resolve ")
"""How librdkafka's reasons begin when there is no connection."""


def address(_context: click.Context, _option: click.Parameter, value: str) -> str:
    """Return a Kafka address. Raises `click.BadParameter` for the URL of another protocol."""
    scheme, separator, rest = value.partition("://")
    if separator and scheme.lower() not in SCHEMES:
        raise click.BadParameter(f"{value}: expected HOST:PORT of a Kafka listener, such as {rest.rstrip('/')}")
    return value


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
        callback=address,
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
    """An `error_cb` that reports on standard error that no server answers: once, and once more after records have flowed again.

    A refused login ends the command (`check`), because the client would try the same password twenty times a second, until the limit of
    failed logins locks this address out. Once the server has answered, the client's own attempts go on: a server that stops may refuse
    a login, too.
    """

    def __init__(self, confluent: ModuleType, bootstrap: str) -> None:
        self._down = confluent.KafkaError._ALL_BROKERS_DOWN
        self._refused = confluent.KafkaError._AUTHENTICATION
        self._bootstrap = bootstrap
        self._reason = ""
        self._is_refused = False
        self._has_answered = False
        self.is_on = False

    def __call__(self, error: Any) -> None:
        """Called by the client library, from inside a poll."""
        if error.code() == self._down:
            self._report()
        elif not self._is_refused:
            self._reason = _without_place(error.str())
            self._is_refused = error.code() == self._refused and not self._has_answered

    def waited(self, seconds: float) -> None:
        """Report that no server has answered after this time, if it is long and nothing else was reported."""
        if seconds > NOTICE_S and not self._has_answered:
            self._report()

    def answered(self) -> None:
        """Note that the server answers."""
        self.is_on = False
        self._has_answered = True
        self._reason = ""

    def check(self) -> None:
        """Raise `Denied` if the server refuses the login."""
        if self._is_refused:
            raise Denied(f"{self._bootstrap}: {self._reason}")

    @property
    def text(self) -> str:
        """That there is no answer, with the client's reason, and a question if the server may have closed the connection on purpose."""
        if HTTP_SIZE in self._reason:
            return f"no answer from {self._bootstrap}: that is an HTTP server, not a Kafka listener"
        reason = f": {self._reason}" if self._reason else ""
        is_closed = not (self._has_answered or self._reason.startswith(UNREACHABLE))
        question = " (does it ask for a login or TLS? See -X security.protocol=…)" if is_closed else ""
        return f"no answer from {self._bootstrap}{reason}{question}"

    def _report(self) -> None:
        if not self.is_on and not self._is_refused:
            self.is_on = True
            say(
                f"bearlake: {self.text}; retrying (set its address with --bootstrap or BEARLAKE_BOOTSTRAP)",
                is_error=True,
            )


def _without_place(text: str) -> str:
    """Return a message of librdkafka without the broker before it and the state after it."""
    return re.sub(r"^\S+/(?:bootstrap|\d+): | \(after \d+ms in state .*\)$", "", text)
