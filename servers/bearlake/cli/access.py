"""`bearlake access`: allow, deny, list and delete access rules. It opens the metadata store itself.

A resource is written as `Kind:name`, such as `Topic:orders` or `Subject:orders-value`; the name `*` means all resources of the kind.
"""

import ipaddress
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from bearlake.cli.command_group import CommandGroup
from bearlake.cli.extras import run_async, server_module
from bearlake.cli.lake_options import chosen, lake_options
from bearlake.cli.output import json_option, print_json, print_table, say
from bearlake.errors import Invalid

KINDS = ("Topic", "Group", "Cluster", "TransactionalId", "Subject", "Namespace")
OPERATIONS = (
    *("All", "Read", "Write", "Create", "Delete", "Alter", "Describe"),
    *("ClusterAction", "DescribeConfigs", "AlterConfigs", "IdempotentWrite"),
)
COLUMNS = ("permission", "principal", "host", "operation", "resource", "pattern")

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group(cls=CommandGroup)
def access() -> None:
    """Allow, deny, list and delete access rules."""


def rule_options(*, are_required: bool) -> Callable[[Command], Command]:
    """Add the options that name a rule, or that select rules."""
    operation: dict[str, Any] = {"required": are_required, "type": click.Choice(OPERATIONS, case_sensitive=False)}
    if are_required:
        operation |= {"multiple": True, "help": "May be repeated."}
    given: Sequence[tuple[str, dict[str, Any]]] = (
        ("--principal", {"required": are_required, "help": "User:name, Group:name, or User:* for everybody."}),
        ("--operation", operation),
        ("--resource", {"required": are_required, "help": f"Kind:name. Kinds: {', '.join(KINDS)}."}),
        ("--host", {"default": "*" if are_required else None, "help": "The client's IP address; * for all."}),
        ("--prefixed", {"is_flag": True, "help": "All resources whose names begin with the name."}),
    )

    def decorate(command: Command) -> Command:
        for name, options in reversed(given):
            command = click.option(name, **options)(command)
        return command

    return decorate


@access.command()
@rule_options(are_required=True)
@lake_options
@json_option
def allow(operation: Sequence[str], as_json: bool, **given: Any) -> int:
    """Allow operations."""
    return _create("Allow", operation, as_json, given)


@access.command()
@rule_options(are_required=True)
@lake_options
@json_option
def deny(operation: Sequence[str], as_json: bool, **given: Any) -> int:
    """Deny operations, whatever else allows them."""
    return _create("Deny", operation, as_json, given)


@access.command("list")
@rule_options(are_required=False)
@lake_options
@json_option
def list_rules(as_json: bool, **given: Any) -> int:
    """List the rules that match all the options."""
    selected, settings = _selected(given), chosen(given, extra="kafka")
    found = run_async(server_module("bearlake.app.access").listed(settings, selected))
    _show(found.rules, as_json)
    for row in sorted(found.unknown):
        say(f"a rule of a later version, which only restricts here: {' '.join(map(repr, row))}", is_error=True)
    return 0


@access.command()
@rule_options(are_required=False)
@click.option("--all", "is_for_all", is_flag=True, help="Delete all rules if no other option selects any.")
@lake_options
@json_option
def delete(is_for_all: bool, as_json: bool, **given: Any) -> int:
    """Delete the rules that match all the options, and show them."""
    fields = [given[name] for name in ("principal", "operation", "resource", "host", "prefixed")]
    if not any(fields) and not is_for_all:
        raise Invalid("no option selects rules: --all deletes all access rules")
    selected, settings = _selected(given), chosen(given, extra="kafka")
    _show(run_async(server_module("bearlake.app.access").delete(settings, selected)), as_json)
    return 0


def _create(permission: str, operations: Sequence[str], as_json: bool, given: dict[str, Any]) -> int:
    model = server_module("bearlake.metadata.access_rules")
    principal, host, prefixed = given.pop("principal"), given.pop("host"), given.pop("prefixed")
    _check_host(host)
    kind, name = _resource(given.pop("resource"))
    rules = [
        model.AccessRule(
            model.Resource(kind),
            name,
            model.PatternKind.PREFIXED if prefixed else model.PatternKind.LITERAL,
            principal,
            host,
            model.operation_of(operation),
            model.Permission(permission),
        )
        for operation in dict.fromkeys(operations)
    ]
    for rule in rules:
        model.check_rule(rule)
    run_async(server_module("bearlake.app.access").create(chosen(given, extra="kafka"), rules))
    _show(rules, as_json)
    return 0


def _selected(given: dict[str, Any]) -> Any:  # a RuleFilter; its module is imported when it is needed
    """Take the fields of a filter out of `given`. Raises `Invalid`."""
    model = server_module("bearlake.metadata.access_rules")
    principal, operation, resource = given.pop("principal"), given.pop("operation"), given.pop("resource")
    host, prefixed = given.pop("host"), given.pop("prefixed")
    kind, name = (None, None) if resource is None else _resource(resource)
    return model.RuleFilter(
        resource=None if kind is None else model.Resource(kind),
        name=name,
        pattern=model.PatternKind.PREFIXED if prefixed else None,
        principal=principal,
        host=host,
        operation=None if operation is None else model.operation_of(operation),
    )


def _check_host(host: str) -> None:
    """Raise `Invalid` if a rule for this host would apply to nobody."""
    if host == "*":
        return
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise Invalid(f"--host {host}: expected the IP address of a client, or * for all") from None


def _resource(text: str) -> tuple[str, str]:
    """Return kind and name. Raises `Invalid`."""
    kind, separator, name = text.partition(":")
    if kind not in KINDS or not separator or not name:
        raise Invalid(f"resource {text!r}: expected Kind:name, with one of the kinds {', '.join(KINDS)}")
    return kind, name


def _show(rules: Sequence[Any], as_json: bool) -> None:
    rows = [
        {
            "permission": rule.permission.value,
            "principal": rule.principal,
            "host": rule.host,
            "operation": rule.operation.value,
            "resource": f"{rule.resource.value}:{rule.name}",
            "pattern": rule.pattern.value,
        }
        for rule in rules
    ]
    if as_json:
        print_json(rows)
    else:
        print_table(rows, {name: name.upper() for name in COLUMNS})
