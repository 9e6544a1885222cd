"""`bearlake serve …`: command lines turned into options of `bearlake.app`. A command is made when it is used: all have many options."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import click

from bearlake.cli.command_group import CommandGroup, Commands
from bearlake.cli.extras import server_module
from bearlake.cli.server_options import (
    as_settings,
    catalog_port,
    grpc_port,
    kafka_port,
    pulsar_http_port,
    pulsar_port,
    registry_port,
    rest_port,
    server_options,
    stop_with_parent,
)

Run = Callable[..., int]

ROLES: Mapping[str, tuple[str, tuple[Callable[[Run], Run], ...]]] = {
    "kafka": ("Run a Kafka server on shared stores, until SIGTERM.", (kafka_port,)),
    "pulsar": ("Run a Pulsar server on shared stores, until SIGTERM.", (pulsar_http_port, pulsar_port)),
    "rest": (
        "Run a REST server with the schema registry on shared stores, until SIGTERM.",
        (rest_port, registry_port),
    ),
    "catalog": ("Run an Iceberg REST catalog on shared stores, until SIGTERM.", (catalog_port,)),
    "grpc": ("Run a gRPC server on shared stores, until SIGTERM.", (grpc_port,)),
    "compactor": ("Run a compaction worker (Spark) on shared stores, until SIGTERM.", ()),
}
"""The help and the ports of each role."""


def _command(role: str) -> click.Command:
    text, ports = ROLES[role]

    def run(**given: Any) -> int:
        return _serve(role, given)

    command: Run = run
    options: tuple[Callable[[Run], Run], ...] = (stop_with_parent, *reversed(ports), server_options)
    for option in options:
        command = option(command)
    return click.command(role, help=text)(command)


@click.group(cls=CommandGroup, commands=Commands(ROLES, _command))
def serve() -> None:
    """Run one server of a cluster."""


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
