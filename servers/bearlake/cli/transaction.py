"""`bearlake transaction`: transactions that are open, what they hold back, and a way to abort one that hangs."""

import click

from bearlake.cli.admin_client import AdminClient, admin_options
from bearlake.cli.command_group import CommandGroup
from bearlake.cli.output import json_option, print_json, print_table, printable, say

_COLUMNS = {
    "transactional_id": "TRANSACTIONAL ID",
    "state": "STATE",
    "age_ms": "AGE MS",
    "timeout_ms": "TIMEOUT MS",
    "producer_id": "PRODUCER",
    "epoch": "EPOCH",
}


@click.group(cls=CommandGroup)
def transaction() -> None:
    """Inspect and abort transactions."""


@transaction.command("list")
@click.option(
    "--all", "is_all", is_flag=True, help="Show all transactional ids, not only those with an open transaction."
)
@click.option(
    "--age-min-ms", type=click.IntRange(0), default=0, help="Leave out transactions that began later (ms ago)."
)
@admin_options
@json_option
def list_transactions(is_all: bool, age_min_ms: int, admin: AdminClient, as_json: bool) -> int:
    """List open transactions. One that is older than its timeout hangs: no server has aborted it."""
    query = {"open": "false" if is_all else "true", "age_min_ms": age_min_ms}
    found = list(admin.pages("/v1/transactions", "transactions", **query))
    if as_json:
        print_json(found)
    else:
        print_table(found, _COLUMNS)
    return 0


@transaction.command()
@click.argument("transactional_id")
@admin_options
@json_option
def describe(transactional_id: str, admin: AdminClient, as_json: bool) -> int:
    """Show a transactional id, and the partitions and groups of its open transaction."""
    found = admin.call("GET", "/v1/transactions/description", id=transactional_id)
    if as_json:
        print_json(found)
        return 0
    print_table([found], _COLUMNS)
    if found["groups"]:
        say(f"groups: {printable(', '.join(found['groups']))}")
    if found["partitions"]:
        print_table(found["partitions"], {"stream": "STREAM", "partition": "PARTITION", "first_offset": "FIRST OFFSET"})
    return 0


@transaction.command()
@click.argument("transactional_id")
@admin_options
@json_option
def abort(transactional_id: str, admin: AdminClient, as_json: bool) -> int:
    """Abort the open transaction of a transactional id, and fence its producer."""
    found = admin.call("GET", "/v1/transactions/description", id=transactional_id)
    if found["state"] == "ongoing":
        asked = {name: found[name] for name in ("transactional_id", "producer_id", "epoch")}
        found = admin.call("POST", "/v1/transactions/abort", asked)
        done = "aborted"
    else:
        done = "no transaction is open"
    if as_json:
        print_json(found)
    else:
        say(f"{printable(transactional_id)}: {done}")
    return 0
