"""`bearlake quota`: set, delete and list quotas. It opens the metadata store itself."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from bearlake.cli.command_group import CommandGroup
from bearlake.cli.extras import run_async, server_module
from bearlake.cli.lake_options import chosen, lake_options
from bearlake.cli.output import json_option, print_json, print_table
from bearlake.errors import Invalid

COLUMNS = ("user", "client_id", "ip", "quota", "value")
ENTITIES = ("user", "client_id", "ip")

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group(cls=CommandGroup)
def quota() -> None:
    """Set, delete and list quotas."""


def entity_options(command: Command) -> Command:
    """Add the options that name an entity: a name, or the default of all names."""
    given: Sequence[tuple[str, dict[str, Any]]] = (
        ("--user", {"help": "A user."}),
        ("--user-default", {"is_flag": True, "help": "Each user without a quota of its own."}),
        ("--client-id", {"help": "A client id (Kafka only)."}),
        ("--client-id-default", {"is_flag": True, "help": "Each client id without a quota of its own."}),
        ("--ip", {"help": "An IP address."}),
        ("--ip-default", {"is_flag": True, "help": "Each address without a quota of its own."}),
    )
    for name, options in reversed(given):
        command = click.option(name, **options)(command)
    return command


@quota.command("set")
@entity_options
@click.argument("quotas", nargs=-1, required=True, metavar="KEY=VALUE...")
@lake_options
@json_option
def set_quotas(quotas: tuple[str, ...], as_json: bool, **given: Any) -> int:
    """Set quotas of an entity, such as producer_byte_rate=1048576.

    Keys: producer_byte_rate, consumer_byte_rate (bytes per second), request_percentage (of each server's time), controller_mutation_rate
    (partitions per second), connection_creation_rate (connections per second of an address).
    """
    model = server_module("bearlake.metadata.quotas")
    entity = _entity(given)
    changes = []
    for text in quotas:
        key, separator, value = text.partition("=")
        if not separator:
            raise Invalid(f"quota {text!r}: expected KEY=VALUE")
        changes.append(model.QuotaChange(entity, model.key_of(key), _number(text, value)))
    return _change(changes, given, as_json)


@quota.command()
@entity_options
@click.argument("keys", nargs=-1, metavar="[KEY...]")
@lake_options
@json_option
def delete(keys: tuple[str, ...], as_json: bool, **given: Any) -> int:
    """Delete quotas of an entity: these, or all."""
    model = server_module("bearlake.metadata.quotas")
    entity = _entity(given)
    chosen_keys = [model.key_of(key) for key in keys] or sorted(model.keys_of(entity), key=lambda key: key.value)
    return _change([model.QuotaChange(entity, key, None) for key in chosen_keys], given, as_json)


@quota.command("list")
@lake_options
@json_option
def list_quotas(as_json: bool, **given: Any) -> int:
    """List all quotas."""
    found = run_async(server_module("bearlake.app.quotas").listed(chosen(given, extra="kafka")))
    rows = [{**_shown(limit.entity), "quota": limit.key.value, "value": limit.value} for limit in found]
    if as_json:
        print_json(rows)
    else:
        shown = [{**row, "value": f"{row['value']:.12g}"} for row in rows]
        print_table(shown, {name: name.upper() for name in COLUMNS})
    return 0


def _change(changes: Sequence[Any], given: dict[str, Any], as_json: bool) -> int:
    """Make the changes. With `as_json`, print them; the value of a deleted quota is null."""
    model = server_module("bearlake.metadata.quotas")
    model.check_quota_changes(changes)
    run_async(server_module("bearlake.app.quotas").change(chosen(given, extra="kafka"), changes))
    if as_json:
        print_json([{**_shown(change.entity), "quota": change.key.value, "value": change.value} for change in changes])
    return 0


def _entity(given: dict[str, Any]) -> Any:  # an Entity; its module is imported when it is needed
    """Take the options of an entity out of `given`. Raises `Invalid`."""
    model = server_module("bearlake.metadata.quotas")
    parts = []
    for name in ENTITIES:
        named, is_default = given.pop(name), given.pop(f"{name}_default")
        if named is not None and is_default:
            option = name.replace("_", "-")
            raise Invalid(f"--{option} and --{option}-default exclude each other")
        parts.append(model.DEFAULT if is_default else named)
    entity = model.Entity(*parts)
    model.keys_of(entity)
    return entity


def _number(text: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise Invalid(f"quota {text!r}: expected a number") from None


def _shown(entity: Any) -> dict[str, str]:
    """Return the parts of an entity; `<default>` stands for the default."""
    parts = zip(ENTITIES, entity, strict=True)
    return {name: "" if part is None else part if isinstance(part, str) else part.value for name, part in parts}
