"""Groups over the admin API: what one server asks another one, what it refuses, and which servers coordinate."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bearlake.metadata.model import CommittedOffset, Server, ServerRef
from bearlake.metadata.open import open_metadata
from bearlake.objects.open import open_store
from bearlake.serving.admin.token import AdminToken
from bearlake.serving.groups import packing, routes
from bearlake.serving.groups.peers import coordinators
from bearlake.serving.membership import Member, ServerSettings
from bearlake.streams.groups.model import GroupState, Joined, JoinedMember, JoinRequest, Synced
from bearlake.streams.groups.peers import Coordination
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.service import Streams
from bearlake.telemetry import metrics
from fixtures.peers import PeerSide

TOKEN = "a token that both servers have"


class Node:
    """One server without a protocol of its own, but for the name of one."""

    def __init__(self, side: PeerSide, member: Member, streams: Streams) -> None:
        self.side = side
        self.member = member
        self.streams = streams


class Pair:
    """Two servers; the first one, a Kafka server, coordinates."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes

    @property
    def url(self) -> str:
        return f"http://{self.nodes[0].side.endpoints['admin']}/v1/groups"

    @cached_property
    def there(self) -> Coordination:
        """The first one's coordinator as the second one reaches it."""
        found = self.nodes[1].side.peers(self.nodes[1].member).reach(self.nodes[0].member.server)
        assert found is not None
        return found


async def make(closing: AsyncExitStack, tokens: tuple[str | None, str | AdminToken | None]) -> Pair:
    metadata, store = await open_metadata("memory:///"), open_store("memory:///")
    closing.push_async_callback(metadata.close)
    closing.push_async_callback(store.close)
    nodes = []
    for name, token in zip(("kafka", "rest"), tokens, strict=True):
        side = PeerSide(token=AdminToken(token) if isinstance(token, str) else token)
        endpoints = {name: "127.0.0.1:1", **side.endpoints}
        member = await Member.join(metadata.servers, ServerSettings(name=name), endpoints)
        streams = Streams(metadata, store, member.server, peers=side.peers(member))
        await streams.start()
        await side.start(streams, member)
        closing.push_async_callback(side.close)
        closing.push_async_callback(streams.close)
        nodes.append(Node(side, member, streams))
    for node in nodes:
        await node.member.refresh()
    await nodes[0].streams.catalog.create("t", 1, {})
    return Pair(nodes)


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with AsyncExitStack() as closing:
        yield await make(closing, (TOKEN, TOKEN))


def request(**changes: Any) -> JoinRequest:
    values: dict[str, Any] = {
        "member_id": "",
        "instance_id": None,
        "client_id": "client ü",
        "client_host": "/h",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": (("range", b"\0\xff"), ("sticky", b"")),
        "requires_known_id": False,
        "can_skip_assignment": True,
    }
    return JoinRequest(**(values | changes))


async def test_a_member_at_another_server_joins_commits_and_leaves(pair: Pair) -> None:
    groups = pair.nodes[1].streams.groups
    view = await pair.nodes[1].streams.catalog.find("t")
    joined = await groups.join("g/ö", request())
    synced = await groups.sync(
        "g/ö", joined.member_id, None, joined.generation, ("consumer", "range"), {joined.member_id: b"\1"}
    )
    await groups.heartbeat("g/ö", joined.member_id, None, joined.generation)
    offsets = {view.partition(0): CommittedOffset(offset=3, leader_epoch=0, metadata="ä")}
    await groups.commit("g/ö", joined.member_id, None, joined.generation, offsets)
    described = await groups.describe("g/ö")
    left = await groups.leave("g/ö", joined.member_id, None)
    (committed,) = (await groups.offsets("g/ö")).values()

    assert pair.nodes[0].streams.coordinator.has("g/ö")
    assert not pair.nodes[1].streams.coordinator.has("g/ö")
    assert joined.members[0].metadata == b"\0\xff"
    assert synced.assignment == b"\1"
    assert (committed.offset, committed.metadata) == (3, "ä")
    assert described.state is GroupState.STABLE
    assert described.members[joined.member_id].client_id == "client ü"
    assert left == joined.member_id


async def test_a_join_that_waits_longer_than_one_request_is_asked_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "WAIT_S", 0.1)
    here, there = (node.streams.groups for node in pair.nodes)
    first = await here.join("g", request())
    asked = metrics.GROUP_PEER_REQUESTS.labels("join", "waiting")
    before = asked.value
    waiting = asyncio.create_task(there.join("g", request()))
    while asked.value < before + 3:  # noqa: ASYNC110
        await asyncio.sleep(0)
    is_waiting = not waiting.done()
    again = await here.join("g", request(member_id=first.member_id))
    second = await waiting

    assert is_waiting
    assert again.generation == second.generation
    assert {one.member_id for one in again.members} == {first.member_id, second.member_id}


async def test_heartbeats_of_many_members_go_together(pair: Pair) -> None:
    groups = pair.nodes[1].streams.groups
    ids = []
    for at in range(20):
        joined = await groups.join(f"g{at}", request())
        ids.append((joined.member_id, joined.generation))
    beats = [groups.heartbeat(f"g{at}", *_who(one)) for at, one in enumerate(ids)]

    answers = await asyncio.gather(*beats, groups.heartbeat("g0", "stranger", None, 1), return_exceptions=True)

    assert answers[:-1] == [None] * 20
    assert isinstance(answers[-1], GroupRefusal)
    assert answers[-1].problem is Problem.UNKNOWN_MEMBER


def _who(one: tuple[str, int]) -> tuple[str, None, int]:
    return one[0], None, one[1]


async def test_a_server_with_another_token_is_not_listened_to() -> None:
    async with AsyncExitStack() as closing:
        pair = await make(closing, (TOKEN, "another token, not shared"))

        with pytest.raises(GroupRefusal) as caught:
            await pair.there.describe("g")

    assert caught.value.problem is Problem.COORDINATOR_UNAVAILABLE
    assert "401" in str(caught.value)
    assert "token" not in str(caught.value)


async def test_a_server_that_does_not_know_the_new_token_yet_is_asked_with_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    ticks = iter(range(0, 10_000, 2))
    rotating = AdminToken(TOKEN, str(file), overlap_ms=600_000, now_s=lambda: float(next(ticks)))
    async with AsyncExitStack() as closing:
        there = (await make(closing, (TOKEN, rotating))).there
        await there.join("g", request())

        file.write_text("a token of the next generation")

        assert len((await there.describe("g")).members) == 1
        assert rotating.accepted() == ["a token of the next generation", TOKEN]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"group": "g"}',
        b'{"group": "g", "request": {}}',
        b'{"group": "g", "request": {"protocols": [["range", "not base64"]]}}',
    ],
)
async def test_what_is_no_request_about_a_group_is_refused(pair: Pair, body: bytes) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{pair.url}/join", data=body) as response,
    ):
        status = response.status

    assert status == 400


async def test_a_server_that_is_gone_does_not_answer(pair: Pair) -> None:
    there = pair.there
    await pair.nodes[0].side.close()

    for asking in (there.describe("g"), there.heartbeat("g", "m", None, 1), there.join("g", request())):
        with pytest.raises(GroupRefusal) as caught:
            await asking
        assert caught.value.problem is Problem.COORDINATOR_UNAVAILABLE


def test_values_are_the_same_behind_the_way() -> None:
    joined = Joined(
        generation=1,
        protocol_type="consumer",
        protocol_name="range",
        leader="a",
        member_id="a",
        members=[JoinedMember(member_id="a", instance_id="i", metadata=b"\0")],
        skips_assignment=True,
    )
    synced = Synced(protocol_type="consumer", protocol_name="range", assignment=b"\xff")
    refusal = packing.unpack_refusal(
        packing.pack_refusal(GroupRefusal(Problem.MEMBER_ID_REQUIRED, "why", member_id="m"))
    )

    assert packing.unpack_request(packing.pack_request(request())) == request()
    assert packing.unpack_joined(packing.pack_joined(joined)) == joined
    assert packing.unpack_synced({**packing.pack_synced(synced), "of a newer version": 1}) == synced
    assert (refusal.problem, str(refusal), refusal.member_id) == (Problem.MEMBER_ID_REQUIRED, "why", "m")


def server(number: int, *endpoints: str, is_draining: bool = False) -> Server:
    return Server(
        ref=ServerRef(node_id=number, epoch=1),
        name=str(number),
        zone=None,
        endpoints=dict.fromkeys(endpoints, "h:1"),
        version="",
        is_draining=is_draining,
        heartbeat_count=0,
        timeout_ms=6_000,
    )


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ([server(1, "kafka", "admin"), server(2, "rest", "admin"), server(3, "kafka:EXTERNAL")], [1, 3]),
        ([server(1, "kafka", is_draining=True), server(2, "rest"), server(3, "grpc")], [2, 3]),
        ([server(1, "kafka", is_draining=True), server(2, "rest", is_draining=True)], [1]),
        ([server(1, "rest", is_draining=True), server(2, "admin")], [1]),
        ([server(1, "admin")], []),
    ],
    ids=["kafka servers", "others, when none stays", "better late than nowhere", "not compaction workers", "none"],
)
def test_groups_belong_to_kafka_servers_while_one_stays(servers: list[Server], expected: list[int]) -> None:
    assert [one.ref.node_id for one in coordinators(servers)] == expected


class Delayed:
    """The way between two servers: requests for one verb arrive after their sender has given them up."""

    def __init__(self, there: Any, verb: str) -> None:
        self._client = there._client
        self._send = self._client._send
        self._verb = verb
        self._held: list[tuple[str, bytes, bool]] = []
        self._client._send = self._hold

    async def _hold(self, url: str, body: bytes, waits: bool) -> tuple[int, bytes]:
        if url.endswith(self._verb):
            self._held.append((url, body, waits))
            raise TimeoutError
        found: tuple[int, bytes] = await self._send(url, body, waits)
        return found

    def pass_on(self) -> None:
        """New requests arrive at once from now on."""
        self._client._send = self._send

    async def arrive(self) -> None:
        """Those that were given up arrive."""
        assert self._held
        for url, body, waits in self._held:
            await self._send(url, body, waits)


async def joined_there(pair: Pair, **changes: Any) -> Joined:
    joined = await pair.there.join("g", request(**changes))
    who = joined.member_id, changes.get("instance_id"), joined.generation
    await pair.there.sync("g", *who, ("consumer", "range"), {joined.member_id: b"\1"})
    return joined


@pytest.mark.parametrize("is_member", [True, False])
async def test_a_commit_that_arrives_after_the_next_acknowledged_one_is_refused(pair: Pair, is_member: bool) -> None:
    view = await pair.nodes[1].streams.catalog.find("t")
    who: tuple[str, None, int] = ("", None, -1)
    if is_member:
        joined = await joined_there(pair)
        who = joined.member_id, None, joined.generation

    async def commit(offset: int) -> None:
        value = CommittedOffset(offset=offset, leader_epoch=-1, metadata="")
        await pair.there.commit("g", *who, {view.partition(0): value})

    await commit(1)
    there = pair.there
    delayed = Delayed(there, "commit")
    with pytest.raises(GroupRefusal):
        await commit(2)
    delayed.pass_on()
    await commit(3)
    await delayed.arrive()

    (committed,) = (await pair.nodes[1].streams.groups.offsets("g")).values()
    assert committed.offset == 3


async def test_a_commit_that_arrives_after_one_through_another_server_is_refused(pair: Pair) -> None:
    view = await pair.nodes[1].streams.catalog.find("t")
    other = pair.nodes[0].side.peers(pair.nodes[0].member).reach(pair.nodes[0].member.server)
    assert other is not None

    async def commit(there: Coordination, offset: int) -> None:
        value = CommittedOffset(offset=offset, leader_epoch=-1, metadata="")
        await there.commit("g", "", None, -1, {view.partition(0): value})

    await commit(pair.there, 1)
    delayed = Delayed(pair.there, "commit")
    with pytest.raises(GroupRefusal):
        await commit(pair.there, 2)
    await commit(other, 3)
    await delayed.arrive()

    (committed,) = (await pair.nodes[1].streams.groups.offsets("g")).values()
    assert committed.offset == 3


async def test_a_join_of_a_static_member_that_arrives_late_does_not_fence_its_next_process(pair: Pair) -> None:
    delayed = Delayed(pair.there, "join")
    with pytest.raises(GroupRefusal):
        await pair.there.join("g", request(instance_id="i"))
    delayed.pass_on()
    joined = await joined_there(pair, instance_id="i")
    await delayed.arrive()

    await pair.there.heartbeat("g", joined.member_id, "i", joined.generation)


async def test_a_leave_that_arrives_late_does_not_remove_a_static_member_that_came_back(pair: Pair) -> None:
    await joined_there(pair, instance_id="i")
    delayed = Delayed(pair.there, "leave")
    with pytest.raises(GroupRefusal):
        await pair.there.leave("g", "", "i")
    delayed.pass_on()
    joined = await joined_there(pair, instance_id="i")
    await delayed.arrive()

    await pair.there.heartbeat("g", joined.member_id, "i", joined.generation)


async def test_commits_of_one_member_side_by_side_are_all_taken(pair: Pair) -> None:
    view = await pair.nodes[1].streams.catalog.find("t")
    values = [CommittedOffset(offset=offset, leader_epoch=-1, metadata="") for offset in range(50)]

    await asyncio.gather(*(pair.there.commit("g", "", None, -1, {view.partition(0): value}) for value in values))
