"""`bearlake up`, `bearlake serve …` and the tour: command lines turned into options of `bearlake.app`."""

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from bearlake.cli.admin_client import admin_option, ca_file_option
from bearlake.cli.command_group import CommandGroup
from bearlake.cli.extras import server_module
from bearlake.cli.http_client import Tls
from bearlake.cli.kafka_options import address
from bearlake.cli.lake_options import DATA_DIR, chosen, lake_options, words_for
from bearlake.cli.output import say

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


@click.command()
@click.option("--data-dir", type=PATH, default=DATA_DIR, show_default=True, help="Folder for metadata and objects.")
@server_options
@kafka_port
@pulsar_port
@pulsar_http_port
@registry_port
@rest_port
@catalog_port
@grpc_port
@console_port
@click.option(
    "--kafka-processes",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Number of server processes, on consecutive ports from --kafka-port.",
)
@click.option(
    "--compaction/--no-compaction",
    default=True,
    help="Start a compaction worker (Spark); without it, records stay in the WAL.",
)
@click.option("--no-tour", is_flag=True, help="Do not run the tour.")
@click.option("--exit-after-tour", is_flag=True, help="Stop after the tour; exit with 0 if it succeeded.")
def up(
    data_dir: Path,
    config: Path | None,
    ready_file: Path | None,
    kafka_processes: int,
    compaction: bool,
    no_tour: bool,
    exit_after_tour: bool,
    **given: Any,
) -> int:
    """Start everything on this machine, and serve until Ctrl-C.

    A short tour produces and consumes 10,000 records. Records and metadata are stored in --data-dir, unless URLs name other stores.
    """
    run = server_module("bearlake.app.run")

    if no_tour and exit_after_tour:
        raise click.UsageError("--no-tour and --exit-after-tour are mutually exclusive")
    code: int = run.up(
        run.UpOptions(
            data_dir=data_dir,
            config=config,
            options=as_settings(given),
            ready_file=ready_file,
            process_count=kafka_processes,
            has_compactor=compaction,
            has_tour=not no_tour,
            exits_after_tour=exit_after_tour,
            stores=words_for(data_dir, config),
        ),
        os.environ,
    )
    return code


@click.command()
@click.option("--config", type=PATH, help="Settings file (YAML); see `bearlake config show`.")
@click.option(
    "--ready-file", type=PATH, help="File to write (atomically, as JSON) once the console accepts connections."
)
@click.option("--host", metavar="ADDRESS", help="Address to listen on  [default: 127.0.0.1].")
@console_port
@click.option(
    "--catalog", "console_catalog_url", metavar="URL", help="Iceberg REST catalog  [default: http://127.0.0.1:8181]."
)
@click.option("--pulsar", "pulsar_url", metavar="URL", help="Pulsar's HTTP API  [default: http://127.0.0.1:8080].")
@click.option("--registry", "registry_url", metavar="URL", help="Schema registry  [default: http://127.0.0.1:8081].")
@click.option("--rest", "rest_url", metavar="URL", help="REST server  [default: http://127.0.0.1:8082].")
@click.option("--admin", "admin_url", metavar="URL", help="Admin API  [default: http://127.0.0.1:9644].")
def console(config: Path | None, ready_file: Path | None, **given: Any) -> int:
    """Serve the console, a web page, until Ctrl-C.

    The console shows a running deployment. It uses the admin API, REST, the schema registry, Pulsar's HTTP API and the Iceberg REST
    catalog, with the login of the person at the browser. `bearlake up` has it already.
    """
    app_console = server_module("bearlake.app.console")

    code: int = app_console.run(config, ready_file, as_settings(given), os.environ)
    return code


@click.group(cls=CommandGroup)
def serve() -> None:
    """Run one server of a cluster."""


@serve.command("kafka")
@server_options
@kafka_port
@stop_with_parent
def serve_kafka(**given: Any) -> int:
    """Run a Kafka server on shared stores, until SIGTERM."""
    return _serve("kafka", given)


@serve.command("pulsar")
@server_options
@pulsar_http_port
@pulsar_port
@stop_with_parent
def serve_pulsar(**given: Any) -> int:
    """Run a Pulsar server on shared stores, until SIGTERM."""
    return _serve("pulsar", given)


@serve.command("rest")
@server_options
@rest_port
@registry_port
@stop_with_parent
def serve_rest(**given: Any) -> int:
    """Run a REST server with the schema registry on shared stores, until SIGTERM."""
    return _serve("rest", given)


@serve.command("catalog")
@server_options
@catalog_port
@stop_with_parent
def serve_catalog(**given: Any) -> int:
    """Run an Iceberg REST catalog on shared stores, until SIGTERM."""
    return _serve("catalog", given)


@serve.command("grpc")
@server_options
@grpc_port
@stop_with_parent
def serve_grpc(**given: Any) -> int:
    """Run a gRPC server on shared stores, until SIGTERM."""
    return _serve("grpc", given)


@serve.command("compactor")
@server_options
@stop_with_parent
def serve_compactor(**given: Any) -> int:
    """Run a compaction worker (Spark) on shared stores, until SIGTERM."""
    return _serve("compactor", given)


def _serve(role: str, given: Mapping[str, Any]) -> int:
    run = server_module("bearlake.app.run", extra=role)

    options = run.ServeOptions(
        role=role,
        config=given["config"],
        options=as_settings(given),
        ready_file=given["ready_file"],
        stops_with_parent=given["stop_with_parent"],
    )
    code: int = run.serve(options, os.environ)
    return code


@click.command(hidden=True)
def executor() -> int:
    """Run a Spark executor of compaction on Kubernetes. Spark starts executor pods with this command."""
    code: int = server_module("bearlake.app.executor", extra="compactor").run(os.environ)
    return code


@click.command()
@click.option(
    "--bootstrap",
    default="127.0.0.1:9092",
    show_default=True,
    envvar="BEARLAKE_BOOTSTRAP",
    callback=address,
    help="Kafka address.",
)
@admin_option
@ca_file_option
@click.option(
    "--table", is_flag=True, help="Then count the records with SQL, and consume them again from the files of the table."
)
@lake_options
def tour(bootstrap: str, admin: str, admin_ca_file: Path | None, table: bool, **given: Any) -> int:
    """Produce and consume 10,000 records, and check them."""
    from bearlake.app import tour as app_tour

    query = None
    if table:
        lake = server_module("bearlake.app.lake", extra="sql")
        settings = chosen(given)
        query = functools.partial(lake.query_rows, settings)
    try:
        tls = Tls(ca_file=admin_ca_file).context() if admin.startswith("https:") else None
        app_tour.run(bootstrap, app_tour.Admin(admin, tls), query)
    except app_tour.TourFailed as error:
        say(f"bearlake: the tour failed: {error}", is_error=True)
        return 1
    return 0
