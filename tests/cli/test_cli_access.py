"""`bearlake access`: rules of every kind are created, listed and deleted in the metadata store."""

import asyncio
import json
from pathlib import Path

import pytest

from bearlake.cli import access as command
from bearlake.cli.main import run
from bearlake.metadata.access_rules import AccessRule, Operation, PatternKind, Permission, Resource
from bearlake.metadata.open import open_metadata
from fixtures.later_versions import later, store_rules


@pytest.fixture
def where(tmp_path: Path) -> list[str]:
    """Options that name an empty store."""
    return ["--metadata-url", f"sqlite://{tmp_path}/metadata.db", "--object-store-url", f"file://{tmp_path}/objects"]


async def stored(where: list[str]) -> set[AccessRule]:
    metadata = await open_metadata(where[1])
    try:
        return set((await metadata.access.read()).rules)
    finally:
        await metadata.close()


def fields(principal: str, operation: str, resource: str) -> list[str]:
    return ["--principal", principal, "--operation", operation, "--resource", resource]


def test_the_command_knows_every_kind_and_operation() -> None:
    assert list(command.KINDS) == [kind.value for kind in Resource]
    assert set(command.OPERATIONS) == {operation.value for operation in Operation}


def test_rules_are_created_listed_and_deleted(where: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["access", "allow", *fields("User:alice", "read", "Subject:orders-"), "--prefixed", *where]) == 0
    assert run(["access", "deny", *fields("Group:ops", "All", "Topic:*"), "--host", "10.0.0.1", *where]) == 0
    allowed = AccessRule(
        Resource.SUBJECT, "orders-", PatternKind.PREFIXED, "User:alice", "*", Operation.READ, Permission.ALLOW
    )
    denied = AccessRule(
        Resource.STREAM, "*", PatternKind.LITERAL, "Group:ops", "10.0.0.1", Operation.ALL, Permission.DENY
    )
    assert asyncio.run(stored(where)) == {allowed, denied}

    capsys.readouterr()
    assert run(["access", "list", "--resource", "Topic:*", "--json", *where]) == 0
    [shown] = json.loads(capsys.readouterr().out)
    assert shown == {
        "permission": "Deny",
        "principal": "Group:ops",
        "host": "10.0.0.1",
        "operation": "All",
        "resource": "Topic:*",
        "pattern": "Literal",
    }
    assert run(["access", "delete", "--principal", "User:alice", *where]) == 0
    assert asyncio.run(stored(where)) == {denied}


def test_a_command_allows_several_operations(where: list[str]) -> None:
    words = ["--principal", "User:bob", "--operation", "Create", "--operation", "write", "--resource", "Topic:orders"]
    assert run(["access", "allow", *words, *where]) == 0
    assert {rule.operation for rule in asyncio.run(stored(where))} == {Operation.CREATE, Operation.WRITE}


def test_all_rules_are_deleted_only_when_asked_for(where: list[str]) -> None:
    assert run(["access", "allow", *fields("User:*", "Write", "Topic:t"), *where]) == 0
    assert run(["access", "delete", *where]) == 2
    assert len(asyncio.run(stored(where))) == 1
    assert run(["access", "delete", "--all", *where]) == 0
    assert asyncio.run(stored(where)) == set()


async def add_later(where: list[str]) -> None:
    metadata = await open_metadata(where[1])
    rule = AccessRule(Resource.STREAM, "t", PatternKind.LITERAL, "User:alice", "*", Operation.WRITE, Permission.DENY)
    await store_rules(metadata, [rule, later(rule, "operation")])
    await metadata.close()


def test_rules_of_a_later_version_are_shown_apart(where: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(add_later(where))
    assert run(["access", "list", "--json", *where]) == 0
    shown = capsys.readouterr()

    assert [rule["operation"] for rule in json.loads(shown.out)] == ["Write"]
    assert "'User:alice' '*' 'Peek' 'Deny'" in shown.err


@pytest.mark.parametrize(
    "wrong",
    [
        fields("alice", "Read", "Topic:t"),
        fields("Server:bearlake", "Read", "Topic:t"),
        fields("User:alice", "Eat", "Topic:t"),
        fields("User:alice", "Read", "t"),
        fields("User:alice", "Read", "Cluster:other"),
    ],
    ids=str,
)
def test_an_invalid_rule_is_refused(where: list[str], wrong: list[str]) -> None:
    assert run(["access", "allow", *wrong, *where]) == 2
