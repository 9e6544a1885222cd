"""Access rules and users of the source: what is copied, and what is only named."""

from pathlib import Path

import pytest

from bearlake.errors import Denied
from bearlake.importing.access import copy_access
from bearlake.importing.cluster import SourceCluster
from bearlake.importing.settings import SourceSettings
from bearlake.metadata.access_rules import AccessRule, Operation, PatternKind, Permission, Resource, RuleFilter
from bearlake.streams.access.control import AccessSettings
from fixtures.kafka_server import Make, Node
from fixtures.logins import Logins, add_user

ALICE = "User:alice"


def rule(kind: Resource, name: str, **changes: object) -> AccessRule:
    """A rule that allows alice to read."""
    made = AccessRule(kind, name, PatternKind.LITERAL, ALICE, "*", Operation.READ, Permission.ALLOW)
    return made._replace(**changes)


RULES = [
    rule(Resource.STREAM, "orders"),
    rule(Resource.STREAM, "ord", pattern=PatternKind.PREFIXED, permission=Permission.DENY, host="192.0.2.1"),
    rule(Resource.STREAM, "*", operation=Operation.DESCRIBE),
    rule(Resource.GROUP, "billing"),
    rule(Resource.TRANSACTIONAL_ID, "copier", operation=Operation.WRITE),
]
OTHERS = [rule(Resource.STREAM, "salaries"), rule(Resource.STREAM, "sal", pattern=PatternKind.PREFIXED)]
CLUSTER = rule(Resource.CLUSTER, "kafka-cluster", operation=Operation.ALTER)


async def nodes(kafka_cluster: Make, targets: Make) -> tuple[Node, Node]:
    """A source whose anonymous callers are administrators, and a target."""
    super_users = AccessSettings(super_users=["User:ANONYMOUS"])
    cluster = await kafka_cluster(1, access=super_users)
    await add_user(cluster.metadata)
    return cluster[0], (await targets())[0]


async def test_rules_of_the_topics_groups_and_transactional_ids_are_created(
    kafka_cluster: Make, cluster_of_each_store: Make
) -> None:
    source, target = await nodes(kafka_cluster, cluster_of_each_store)
    await source.streams.access.create([*RULES, *OTHERS, CLUSTER])
    kept = rule(Resource.STREAM, "ours")
    await target.streams.access.create([kept, RULES[0]])
    cluster = SourceCluster(source.address, SourceSettings())

    copied = await copy_access(cluster, target.streams.access, ["orders"])
    again = await copy_access(cluster, target.streams.access, ["orders"])

    assert set(copied.rules) == set(again.rules) == set(RULES)
    assert set(await target.streams.access.list(RuleFilter())) == {kept, *RULES}
    assert copied.left == ["User:alice on Cluster:kafka-cluster: it would give rights on this whole deployment"]


async def test_users_are_named_with_their_mechanisms(kafka_cluster: Make, cluster_of_each_store: Make) -> None:
    source, target = await nodes(kafka_cluster, cluster_of_each_store)
    cluster = SourceCluster(source.address, SourceSettings())

    copied = await copy_access(cluster, target.streams.access, ["orders"])

    assert copied.users == [("alice", "SCRAM-SHA-256", 4096), ("alice", "SCRAM-SHA-512", 4096)]
    assert copied.rules == []


async def test_a_source_that_hides_its_rules_is_said(
    kafka_cluster: Make, logins: Logins, cluster_of_each_store: Make, tmp_path: Path
) -> None:
    cluster = await kafka_cluster(1, authentication=logins.settings())
    await add_user(cluster.metadata)
    target = (await cluster_of_each_store())[0]
    (tmp_path / "secret").write_text("secret")
    settings = SourceSettings(mechanism="SCRAM-SHA-512", user="alice", password_file=str(tmp_path / "secret"))

    with pytest.raises(Denied, match="its access rules"):
        await copy_access(SourceCluster(cluster[0].address, settings), target.streams.access, ["orders"])
