"""`bearlake server list`: who is live."""

import click

from bearlake.cli.admin_client import AdminClient, admin_options
from bearlake.cli.command_group import CommandGroup
from bearlake.cli.output import json_option, print_json, print_table


@click.group(cls=CommandGroup)
def server() -> None:
    """Inspect the servers of the deployment."""


@server.command("list")
@admin_options
@json_option
def list_servers(admin: AdminClient, as_json: bool) -> int:
    """List live servers."""
    servers = admin.call("GET", "/v1/servers")["servers"]
    if as_json:
        print_json(servers)
        return 0
    columns = {
        "node_id": "NODE",
        "name": "NAME",
        "zone": "ZONE",
        "epoch": "EPOCH",
        "endpoints": "ENDPOINTS",
        "is_draining": "DRAINING",
        "heartbeat_age_ms": "HEARTBEAT MS",
        "version": "VERSION",
    }
    print_table(servers, columns)
    return 0
