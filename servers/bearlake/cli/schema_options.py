"""The options `--registry…` of `consume` and `produce`: records whose keys and values are serialized by schemas."""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from bearlake.cli.extras import server_module
from bearlake.cli.http_client import TIMEOUT_S, Api, HttpClient, Tls
from bearlake.cli.output import printable, say
from bearlake.cli.record_format import Record

F = TypeVar("F", bound=Callable[..., Any])

API = Api(word="registry", title="the schema registry", url_default="http://127.0.0.1:8081", error_field="message")
ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""Largest answer of a registry: a schema of the largest size (1 MiB) takes six times as much if all its characters are escaped."""
_FIELDS = ("registry", "registry_user", "registry_password_file", "registry_ca_file")


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry that the options name."""

    url: str
    user: str | None
    password_file: Path | None
    ca_file: Path | None

    @contextmanager
    def opened(self) -> Iterator[Any]:  # app.schema_values.SchemaValues, which is imported late
        """Read and write values by its schemas, for the block. Raises `Invalid`."""
        client = HttpClient(
            API,
            self.url,
            API.login(self.user, self.password_file),
            Tls(ca_file=self.ca_file),
            request_s=TIMEOUT_S,
            answer_bytes_max=ANSWER_BYTES_MAX,
        )
        values = server_module("bearlake.app.schema_values").SchemaValues(lambda path: client.call("GET", path), _warn)
        try:
            yield values
        finally:
            values.close()


def _warn(line: str) -> None:
    say(f"bearlake: {printable(line)}", is_error=True)


def registry_options(command: F) -> F:
    """The options of a registry. The command gets one argument `registry` for them, a `Registry`."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        return command(*arguments, registry=Registry(*(options.pop(name) for name in _FIELDS)), **options)

    described: Any = run  # click's decorators do not keep the type of a function with keyword-only parameters
    for option in (
        API.file_option("ca", "Authorities (PEM) of the registry's certificate  [default: the machine's]."),
        click.option(
            "--registry-password-file",
            type=click.Path(path_type=Path),
            help="File with the user's password  [default: the variable BEARLAKE_REGISTRY_PASSWORD].",
        ),
        click.option(
            "--registry-user", metavar="NAME", envvar="BEARLAKE_REGISTRY_USER", show_envvar=True, help="User there."
        ),
        API.option("Schema registry."),
    ):
        described = option(described)
    found: F = described
    return found


def decoded(values: Any, records: Sequence[Record]) -> list[Record]:
    """Return records whose serialized keys and values are JSON texts."""
    parts = values.read([part for record in records for part in (record.key, record.value)])
    return [
        replace(record, key=key, value=value)
        for record, key, value in zip(records, parts[::2], parts[1::2], strict=True)
    ]


def encoder(values: Any, stream: str, key: str | None, value: str | None) -> Callable[[Record], Record]:
    """Return what serializes the keys and values of a stream's records by the schemas that the options name; None: as they are.

    Raises as `SchemaValues.chosen`; the function as `SchemaValues.written`.
    """
    key_id = None if key is None else values.chosen(key, f"{stream}-key")
    value_id = None if value is None else values.chosen(value, f"{stream}-value")

    def written(schema_id: int | None, text: bytes | None) -> bytes | None:
        found: bytes | None = text if schema_id is None or text is None else values.written(schema_id, text)
        return found

    return lambda record: replace(record, key=written(key_id, record.key), value=written(value_id, record.value))
