"""The v3 API deletes groups without members, with what they have in topics. Sources: KIP-229, KIP-932."""

import pytest

from bearlake.metadata.model import CommittedOffset
from bearlake.streams.access.rights import on
from bearlake.streams.groups.consumer.model import LEAVES, Heartbeat
from bearlake.streams.groups.model import MemberRef
from bearlake.streams.groups.shares import ShareCoordinator
from bearlake.streams.principal import Operation, Resource
from fixtures.groups import ref
from fixtures.rest_server import Answer, RestNode
from fixtures.rights import OnlyRights
from fixtures.server_pair import request
from fixtures.share_groups import begin_share_group


async def delete(node: RestNode, kind: str, name: str) -> Answer:
    return await node.ask("DELETE", f"/v3/clusters/{node.member.cluster_id}/{kind}-groups/{name}")


async def names(node: RestNode, kind: str) -> list[str]:
    found = (await node.get(f"/v3/clusters/{node.member.cluster_id}/{kind}-groups")).body["data"]
    return [group[f"{kind}_group_id"] for group in found]


@pytest.fixture
async def node(rest: RestNode) -> RestNode:
    """A topic, a group that has committed an offset in it, and a share group with state in it."""
    await rest.create("t")
    view = await rest.streams.catalog.find("t")
    await rest.streams.groups.commit(MemberRef(group="g"), {view.partition(0): CommittedOffset(offset=0)})
    await begin_share_group(rest.streams, "s", "t", 0)
    return rest


async def test_a_consumer_group_is_deleted_with_its_offsets(node: RestNode) -> None:
    assert (await delete(node, "consumer", "g")).status == 204

    assert "g" not in await names(node, "consumer")
    assert await node.streams.groups.offsets("g") == {}
    again = await delete(node, "consumer", "g")
    assert (again.status, again.body["message"]) == (404, "there is no group 'g'")


async def test_a_group_with_members_stays(node: RestNode) -> None:
    joined = await node.streams.groups.join("g", request())
    refused = await delete(node, "consumer", "g")

    assert (refused.status, refused.body["message"]) == (409, "group 'g' has members: stop its consumers first")
    assert len(await node.streams.groups.offsets("g")) == 1
    await node.streams.groups.leave(ref("g", joined.member_id))
    assert (await delete(node, "consumer", "g")).status == 204


async def test_a_share_group_is_deleted_with_its_state_in_topics_once_it_has_no_members(node: RestNode) -> None:
    coordinator = ShareCoordinator(node.streams.metadata, node.streams.coordinator.ownership)
    (partition,) = (await node.streams.catalog.find("t")).partitions()
    await coordinator.beat("s", Heartbeat(member_id="one", epoch=0, topics=("t",), client_id="c", client_host="/h"))
    refused = await delete(node, "share", "s")
    assert (refused.status, "has members" in refused.body["message"]) == (409, True)
    assert len(await node.streams.metadata.cursors.load(partition)) == 1
    await coordinator.beat("s", Heartbeat(member_id="one", epoch=LEAVES))

    assert (await delete(node, "share", "s")).status == 204

    assert await names(node, "share") == []
    assert await node.streams.metadata.cursors.load(partition) == []
    assert (await delete(node, "share", "s")).status == 404


async def test_the_routes_of_one_kind_of_groups_do_not_delete_the_other(node: RestNode) -> None:
    """The state of a share group in topics would stay."""
    assert (await delete(node, "consumer", "s")).status == 409
    assert (await delete(node, "share", "g")).status == 404

    assert await names(node, "share") == ["s"]
    assert "g" in await names(node, "consumer")


async def test_a_group_is_deleted_only_with_the_right_to_delete_it(node: RestNode) -> None:
    node.streams.authorizer = OnlyRights([*on(Resource.GROUP, Operation.READ, Operation.DESCRIBE)])

    assert (await delete(node, "consumer", "g")).status == 403
    assert len(await node.streams.metadata.groups.offsets("g", None)) == 1
