"""Groups over the admin API: requests between servers, refusals, and which servers coordinate."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from bearlake.metadata.model import CommittedOffset, Server, ServerRef
from bearlake.serving.admin.token import AdminToken
from bearlake.serving.groups import packing, requests, routes
from bearlake.serving.groups.peers import coordinators
from bearlake.streams.groups.model import GroupState, Joined, JoinedMember, Synced
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.telemetry import metrics
from fixtures.groups import ref
from fixtures.server_pair import TOKEN, Pair, make, request


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with AsyncExitStack() as closing:
        yield await make(closing, (TOKEN, TOKEN))


async def test_a_member_at_another_server_joins_commits_and_leaves(pair: Pair) -> None:
    groups = pair.nodes[1].streams.groups
    view = await pair.nodes[1].streams.catalog.find("t")
    joined = await groups.join("g/ö", request())
    synced = await groups.sync(
        ref("g/ö", joined.member_id, None, joined.generation), ("consumer", "range"), {joined.member_id: b"\1"}
    )
    await groups.heartbeat(ref("g/ö", joined.member_id, None, joined.generation))
    offsets = {view.partition(0): CommittedOffset(offset=3, leader_epoch=0, metadata="ä")}
    await groups.commit(ref("g/ö", joined.member_id, None, joined.generation), offsets)
    described = await groups.describe("g/ö")
    left = await groups.leave(ref("g/ö", joined.member_id))
    (committed,) = (await groups.offsets("g/ö")).values()

    assert pair.nodes[0].streams.coordinator.has("g/ö")
    assert not pair.nodes[1].streams.coordinator.has("g/ö")
    assert joined.members[0].metadata == b"\0\xff"
    assert synced.assignment == b"\1"
    assert (committed.offset, committed.metadata) == (3, "ä")
    assert described.state is GroupState.STABLE
    assert described.members[joined.member_id].client_id == "client ü"
    assert left == joined.member_id


async def test_a_group_is_deleted_through_another_server_once_it_has_no_members(pair: Pair) -> None:
    groups = pair.nodes[1].streams.groups
    view = await pair.nodes[1].streams.catalog.find("t")
    joined = await groups.join("g", request())
    await groups.sync(ref("g", joined.member_id, None, joined.generation), ("consumer", "range"), {})
    await groups.commit(
        ref("g", joined.member_id, None, joined.generation), {view.partition(0): CommittedOffset(offset=3)}
    )
    with pytest.raises(GroupRefusal) as full:
        await groups.delete("g")
    await groups.leave(ref("g", joined.member_id))
    await groups.delete("g")
    with pytest.raises(GroupRefusal) as absent:
        await groups.delete("g")

    assert (full.value.problem, absent.value.problem) == (Problem.NON_EMPTY, Problem.NOT_FOUND)
    assert await groups.offsets("g") == {}
    assert not pair.nodes[0].streams.coordinator.has("g")


async def test_a_join_that_waits_longer_than_one_request_is_repeated(
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
    assert {member.member_id for member in again.members} == {first.member_id, second.member_id}


async def test_heartbeats_of_many_members_are_sent_together(pair: Pair) -> None:
    groups = pair.nodes[1].streams.groups
    ids = []
    for at in range(20):
        joined = await groups.join(f"g{at}", request())
        ids.append((joined.member_id, joined.generation))
    beats = [
        groups.heartbeat(ref(f"g{at}", member_id, None, generation)) for at, (member_id, generation) in enumerate(ids)
    ]

    answers = await asyncio.gather(*beats, groups.heartbeat(ref("g0", "stranger", None, 1)), return_exceptions=True)

    assert answers[:-1] == [None] * 20
    assert isinstance(answers[-1], GroupRefusal)
    assert answers[-1].problem is Problem.UNKNOWN_MEMBER


async def test_a_server_with_another_token_is_rejected() -> None:
    async with AsyncExitStack() as closing:
        pair = await make(closing, (TOKEN, "another token, not shared"))

        with pytest.raises(GroupRefusal) as caught:
            await pair.there.describe("g")

    assert caught.value.problem is Problem.COORDINATOR_UNAVAILABLE
    assert "401" in str(caught.value)
    assert "token" not in str(caught.value)


async def test_a_server_without_the_new_token_is_asked_with_the_previous_token(tmp_path: Path) -> None:
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
async def test_an_invalid_group_request_is_refused(pair: Pair, body: bytes) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{pair.url}/join", data=body) as response,
    ):
        status = response.status

    assert status == 400


MEMBER = {"group": "g", "member_id": "m", "instance_id": None, "generation": 1, "revision": ""}
WRONG: list[tuple[str, dict[str, object]]] = [
    ("join", {"group": {}, "request": packing.pack_request(request())}),
    ("join", {"group": "g", "request": {**packing.pack_request(request()), "session_timeout_ms": "1"}}),
    ("join", {"group": "g", "request": {**packing.pack_request(request()), "protocols": [["range", "no base64"]]}}),
    ("sync", {**MEMBER, "protocol": ["consumer"], "assignments": {}}),
    ("sync", {**MEMBER, "protocol": ["consumer", "range"], "assignments": {"m": 5}}),
    ("heartbeat", {"beats": [[{}, "m", None, 1]]}),
    ("heartbeat", {"beats": [["g", "m", None, 2**70]]}),
    ("leave", {**MEMBER, "group": []}),
    ("leave", {**MEMBER, "revision": 5}),
    ("commit", {**MEMBER, "offsets": [[1, "5", -1, ""]]}),
    ("commit", {**MEMBER, "offsets": [[1, 2**63, -1, ""]]}),
    ("commit", {**MEMBER, "offsets": [["1", 5, -1, ""]]}),
    ("delete", {"group": 5}),
    ("describe", {"group": None}),
]


@pytest.mark.parametrize(("name", "body"), WRONG)
async def test_a_group_request_with_a_value_of_another_type_is_refused(
    pair: Pair, name: str, body: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{pair.url}/{name}", json=body) as response,
    ):
        status = response.status

    assert status == 400
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_stopped_server_does_not_answer(pair: Pair) -> None:
    there = pair.there
    await pair.nodes[0].side.close()

    for asking in (there.describe("g"), there.heartbeat(ref("g", "m", None, 1)), there.join("g", request())):
        with pytest.raises(GroupRefusal) as caught:
            await asking
        assert caught.value.problem is Problem.COORDINATOR_UNAVAILABLE


def test_values_survive_the_way_to_another_server() -> None:
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

    newer = {**packing.pack_request(request()), "of a newer version": 1}
    asked = requests.JOIN.read(json.dumps({"group": "g", "request": newer, "revision": ""}).encode())

    assert asked.join_request() == request()
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
def test_groups_stay_on_kafka_servers_while_one_lives(servers: list[Server], expected: list[int]) -> None:
    assert [coordinator.ref.node_id for coordinator in coordinators(servers)] == expected


async def test_concurrent_commits_of_one_member_are_all_accepted(pair: Pair) -> None:
    view = await pair.nodes[1].streams.catalog.find("t")
    values = [CommittedOffset(offset=offset, leader_epoch=-1, metadata="") for offset in range(50)]

    await asyncio.gather(*(pair.there.commit(ref("g", "", None, -1), {view.partition(0): value}) for value in values))
