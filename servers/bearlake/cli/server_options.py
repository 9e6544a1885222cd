"""Options of commands that run servers, and the settings that they override."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

PROTOCOLS = ("kafka", "pulsar", "pulsar_http", "registry", "rest", "catalog", "grpc")
PORT = click.IntRange(0, 65535)
PATH = click.Path(path_type=Path)

_SETTINGS = {
    "kafka_port": ("--kafka-port", "listeners.kafka.port"),
    "pulsar_port": ("--pulsar-port", "listeners.pulsar.port"),
    "pulsar_http_port": ("--pulsar-http-port", "listeners.pulsar_http.port"),
    "rest_port": ("--rest-port", "listeners.rest.port"),
    "registry_port": ("--registry-port", "listeners.registry.port"),
    "catalog_port": ("--catalog-port", "listeners.catalog.port"),
    "grpc_port": ("--grpc-port", "listeners.grpc.port"),
    "admin_port": ("--admin-port", "admin.port"),
    "console_port": ("--console-port", "console.port"),
    "admin_url": ("--admin", "console.admin_url"),
    "rest_url": ("--rest", "console.rest_url"),
    "registry_url": ("--registry", "console.registry_url"),
    "pulsar_url": ("--pulsar", "console.pulsar_url"),
    "console_catalog_url": ("--catalog", "console.catalog_url"),
    "metadata_url": ("--metadata-url", "metadata.url"),
    "object_store_url": ("--object-store-url", "object_store.url"),
    "catalog_url": ("--catalog-url", "tables.catalog_url"),
    "name": ("--name", "server.name"),
    "zone": ("--zone", "server.zone"),
}


def server_options(command: F) -> F:
    """Options that every server command has; each overrides a setting."""
    for option in (
        click.option("--config", type=PATH, help="Settings file (YAML); see `bearlake config show`."),
        click.option(
            "--ready-file", type=PATH, help="File to write (atomically, as JSON) once all listeners accept connections."
        ),
        click.option("--catalog-url", metavar="URL", help="Iceberg catalog: sqlite:///…, postgresql://…, http(s)://…"),
        click.option("--object-store-url", metavar="URL", help="file:///folder, s3://bucket/prefix, …"),
        click.option("--metadata-url", metavar="URL", help="sqlite:///path or postgresql://user@host/database."),
        click.option("--zone", metavar="NAME", help="Availability zone of this server."),
        click.option("--name", metavar="NAME", help="Stable name of this server  [default: host and port]."),
        click.option("--host", metavar="ADDRESS", help="Address to listen on  [default: 127.0.0.1]."),
        click.option("--admin-port", type=PORT, help="Port of the admin API; 0: any free port  [default: 9644]."),
    ):
        command = option(command)
    return command


def _port(name: str, what: str, default: int) -> Callable[[F], F]:
    return click.option(f"--{name}-port", type=PORT, help=f"Port of {what}; 0: any free port  [default: {default}].")


kafka_port = _port("kafka", "the Kafka listener", 9092)
pulsar_port = _port("pulsar", "the Pulsar listener", 6650)
pulsar_http_port = _port("pulsar-http", "Pulsar's HTTP API", 8080)
registry_port = _port("registry", "the schema registry", 8081)
rest_port = _port("rest", "REST", 8082)
catalog_port = _port("catalog", "the Iceberg REST catalog", 8181)
grpc_port = _port("grpc", "gRPC", 50051)
console_port = _port("console", "the console", 9645)
stop_with_parent = click.option("--stop-with-parent", is_flag=True, hidden=True, help="Stop when standard input ends.")


def as_settings(given: Mapping[str, Any]) -> dict[str, tuple[object, str]]:
    """Settings by dotted path with the option that gave them; options that were not given are left out."""
    chosen: dict[str, tuple[object, str]] = {
        path: (given[key], option) for key, (option, path) in _SETTINGS.items() if given.get(key) is not None
    }
    if given.get("host") is not None:
        sections = [*(f"listeners.{protocol}" for protocol in PROTOCOLS), "admin", "console"]
        chosen |= {f"{section}.host": (given["host"], "--host") for section in sections}
    return chosen
