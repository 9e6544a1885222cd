"""Callers with very many groups and rules: what they may do, and how many look-ups a name costs."""

import random
from typing import Any

import pytest

from bearlake.metadata.access_rules import AccessRule, Operation, PatternKind, Permission, Resource
from bearlake.streams.access import snapshot
from bearlake.streams.access.snapshot import Snapshot
from bearlake.streams.principal import Principal

HOSTS = ["*", "10.0.0.1", "10.0.0.2"]


class Sliced(str):
    """A name that counts how many prefixes of it are asked for."""

    count = 0

    def __getitem__(self, at: Any) -> str:
        self.count += 1
        return str.__getitem__(self, at)


def rule(random_: random.Random, group: int) -> AccessRule:
    return AccessRule(
        Resource.STREAM,
        "".join(random_.choices("ab", k=random_.randint(1, 4))) if random_.random() < 0.95 else "*",
        PatternKind.LITERAL,
        f"Group:g{group}",
        random_.choice(HOSTS),
        random_.choice([Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL]),
        random_.choice([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
    )


def prefixed(found: AccessRule) -> AccessRule:
    kind = PatternKind.LITERAL if found.name == "*" else PatternKind.PREFIXED
    return AccessRule(found.resource, found.name, kind, found.principal, found.host, found.operation, found.permission)


@pytest.mark.parametrize("seed", range(20))
def test_many_patterns_give_the_same_decisions_as_few(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random_ = random.Random(seed)
    rules = [rule(random_, group) for group in range(6) for _ in range(random_.randint(0, 3))]
    rules = [found if random_.random() < 0.5 else prefixed(found) for found in rules]
    names = ["a", "b", "ab", "aba", "abab", "bbbb", "c", "abc"]
    callers = [
        Principal("User", "alice", frozenset(f"g{group}" for group in range(6) if random_.random() < 0.5), host=host)
        for host in ("10.0.0.1", "10.0.0.3", "")
    ]

    few = Snapshot(rules, 1, allows_by_default=False)
    expected = [few.mask(who, Resource.STREAM, name) for who in callers for name in names]
    monkeypatch.setattr(snapshot, "MERGED_MAX", -1)
    many = Snapshot(rules, 2, allows_by_default=False)

    assert [many.mask(who, Resource.STREAM, name) for who in callers for name in names] == expected


def test_the_look_ups_of_a_name_do_not_grow_with_groups() -> None:
    groups, lengths = 200, 50
    rules = [
        AccessRule(
            Resource.STREAM,
            "y" * length,
            PatternKind.PREFIXED,
            f"Group:g{group}",
            "*",
            Operation.READ,
            Permission.ALLOW,
        )
        for group in range(groups)
        for length in range(1, lengths + 1)
    ]
    who = Principal("User", "alice", frozenset(f"g{group}" for group in range(groups)))
    rules.append(
        AccessRule(Resource.STREAM, "team", PatternKind.PREFIXED, "User:bob", "*", Operation.READ, Permission.ALLOW)
    )
    compiled = Snapshot(rules, 1, allows_by_default=False)
    name = Sliced("team1.stream-with-a-name-that-has-more-than-fifty-characters")

    assert compiled.mask(who, Resource.STREAM, name) == 0

    assert name.count <= 3 * lengths
