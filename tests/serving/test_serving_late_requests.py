"""Abandoned requests about groups that arrive after later requests, whatever the route of those requests."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest

from bearlake.metadata.model import CommittedOffset
from bearlake.serving.admin.token import AdminToken
from bearlake.serving.groups import client
from bearlake.serving.groups.client import GroupClient
from bearlake.serving.groups.peers import GroupPeers
from bearlake.streams.groups.model import GroupState
from bearlake.streams.groups.peers import Coordination
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.revisions import Outdated
from bearlake.streams.groups.settings import GroupSettings
from bearlake.telemetry import metrics
from fixtures.groups import ref
from fixtures.server_pair import TOKEN, Delayed, Pair, commit, committed, joined, make, partition, request
from simulator.loop import virtual_time


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with AsyncExitStack() as closing:
        yield await make(closing, (TOKEN, TOKEN))


def route(pair: Pair, name: str) -> Coordination:
    """The route of the later request: through the same server, through another one, or directly to the coordinator's."""
    return {"same": pair.there, "other": pair.other, "own": pair.here}[name]


ROUTES = pytest.mark.parametrize("later", ["same", "other", "own"])


@ROUTES
@pytest.mark.parametrize("kind", ["self-managed", "member", "static"])
async def test_a_commit_that_arrives_after_the_next_acknowledged_one_is_refused(
    pair: Pair, kind: str, later: str
) -> None:
    who: tuple[str, str | None, int] = ("", None, -1)
    if kind != "self-managed":
        instance_id = "i" if kind == "static" else None
        member = await joined(pair, pair.there, instance_id=instance_id)
        who = member.member_id, instance_id, member.generation
    await commit(pair, pair.there, 1, who)
    delayed = Delayed(pair.there, "commit")
    with pytest.raises(GroupRefusal):
        await commit(pair, pair.there, 5, who)
    delayed.pass_on()
    await commit(pair, route(pair, later), 10, who)
    await delayed.arrive()

    assert await committed(pair) == 10


async def test_a_commit_that_arrives_after_its_offset_was_deleted_does_not_bring_it_back(pair: Pair) -> None:
    await commit(pair, pair.there, 1)
    delayed = Delayed(pair.there, "commit")
    with pytest.raises(GroupRefusal):
        await commit(pair, pair.there, 5)
    await pair.here.delete_offsets("g", [await partition(pair)])
    await delayed.arrive()

    assert await committed(pair) is None


@ROUTES
async def test_a_commit_without_a_member_that_arrives_after_a_members_is_refused_though_the_group_is_empty_again(
    pair: Pair, later: str
) -> None:
    await commit(pair, pair.there, 1)
    delayed = Delayed(pair.there, "commit")
    with pytest.raises(GroupRefusal):
        await commit(pair, pair.there, 5)
    delayed.pass_on()
    member = await joined(pair, route(pair, later))
    await commit(pair, route(pair, later), 10, (member.member_id, None, member.generation))
    await route(pair, later).leave(ref("g", member.member_id))
    await delayed.arrive()

    assert pair.here.owned()["g"].state is GroupState.EMPTY
    assert await committed(pair) == 10


@ROUTES
async def test_a_commit_that_arrives_after_the_group_has_moved_is_refused(pair: Pair, later: str) -> None:
    await commit(pair, pair.there, 1)
    delayed = Delayed(pair.there, "commit")
    with pytest.raises(GroupRefusal):
        await commit(pair, pair.there, 5)
    delayed.pass_on()
    await pair.here.ownership.release_all()
    await commit(pair, route(pair, later), 10)
    await delayed.arrive()

    assert await committed(pair) == 10


@ROUTES
async def test_a_join_of_a_static_member_that_arrives_late_does_not_fence_its_next_process(
    pair: Pair, later: str
) -> None:
    await commit(pair, pair.there, 1)
    delayed = Delayed(pair.there, "join")
    with pytest.raises(GroupRefusal):
        await pair.there.join("g", request(instance_id="i"))
    delayed.pass_on()
    member = await joined(pair, route(pair, later), instance_id="i")
    await delayed.arrive()

    await pair.there.heartbeat(ref("g", member.member_id, "i", member.generation))


@ROUTES
@pytest.mark.parametrize("names", ["instance", "both", "id"])
async def test_a_leave_that_arrives_late_does_not_remove_a_static_member_that_came_back(
    pair: Pair, names: str, later: str
) -> None:
    member = await joined(pair, pair.there, instance_id="i")
    delayed = Delayed(pair.there, "leave")
    with pytest.raises(GroupRefusal):
        await pair.there.leave(
            ref("g", "" if names == "instance" else member.member_id, None if names == "id" else "i")
        )
    delayed.pass_on()
    again = await joined(
        pair, route(pair, later), instance_id="i", member_id="" if names == "instance" else member.member_id
    )
    await delayed.arrive()

    await pair.there.heartbeat(ref("g", again.member_id, "i", again.generation))


async def test_an_assignment_that_arrives_after_the_group_has_moved_is_not_given_to_the_next_round(pair: Pair) -> None:
    leader = await joined(pair, pair.there)
    waiting = asyncio.create_task(pair.there.join("g", request()))
    while pair.here.owned()["g"].state is not GroupState.PREPARING:  # noqa: ASYNC110
        await asyncio.sleep(0)
    again = request(member_id=leader.member_id)
    lost, gone = await asyncio.gather(pair.there.join("g", again), waiting)
    delayed = Delayed(pair.there, "sync")
    shares = {leader.member_id: b"half", gone.member_id: b"other half"}
    with pytest.raises(GroupRefusal):
        await pair.there.sync(ref("g", leader.member_id, None, lost.generation), ("consumer", "range"), shares)
    delayed.pass_on()
    await pair.here.ownership.release_all()  # nothing of this round was saved; the other member does not join again
    alone = await pair.there.join("g", again)
    await delayed.arrive()
    synced = await pair.there.sync(
        ref("g", leader.member_id, None, alone.generation), ("consumer", "range"), {leader.member_id: b"all"}
    )

    assert [member.member_id for member in alone.members] == [leader.member_id]
    assert synced.assignment == b"all"


async def test_servers_that_commit_different_partitions_at_once_do_not_outdate_each_other(pair: Pair) -> None:
    view = await pair.nodes[0].streams.catalog.create("many", 12, {})
    outdated = metrics.GROUP_PEER_REQUESTS.labels("commit", "outdated")
    before = outdated.value

    async def send(index: int) -> None:
        peers = GroupPeers(pair.nodes[0].member, GroupSettings(), AdminToken(TOKEN))
        there = peers.reach(pair.nodes[0].member.server)
        assert there is not None
        for offset in range(20):
            await there.commit(ref("g", "", None, -1), {view.partition(index): CommittedOffset(offset=offset)})
        await peers.close()

    await asyncio.gather(*(send(index) for index in range(12)))

    assert outdated.value - before == 12  # each server learns the term once


class Longest(random.Random):
    """Draws the longest pause."""

    def uniform(self, a: float, b: float) -> float:
        return b


class Outpaced(GroupClient):
    """Its requests always arrive after other requests."""

    sent_count = 0

    async def _post(self, server: str, verb: str, document: Mapping[str, Any], **how: Any) -> dict[str, Any] | None:
        self.sent_count += 1
        raise Outdated(f"term/{self.sent_count}")


@virtual_time
async def test_a_request_that_is_outdated_again_pauses_and_gives_up_in_the_end() -> None:
    outpaced = Outpaced(GroupSettings(), None, Longest())
    with pytest.raises(GroupRefusal) as caught:
        await outpaced.ask_in_line("http://h", "commit", {"group": "g"}, "m")

    pauses_ms = [min(4 * 2**at, client.RESEND_PAUSE_BOUND_MAX_MS) for at in range(client.RESEND_COUNT_MAX - 1)]
    assert caught.value.problem is Problem.COORDINATOR_UNAVAILABLE
    assert outpaced.sent_count == 1 + client.RESEND_COUNT_MAX
    assert asyncio.get_running_loop().time() == pytest.approx(sum(pauses_ms) / 1000, abs=0.001)


@virtual_time
async def test_a_long_join_at_a_coordinator_that_numbers_each_member_by_itself() -> None:
    """As coordinators did before decision 92: they take exactly the member's newest number. Another member has a larger one."""
    asker = GroupClient(GroupSettings(), None, random.Random(1))
    newest = {"a": 3, "b": 50}
    waits = 6
    asked = 0

    async def send(url: str, body: bytes, is_waiting: bool) -> tuple[int, bytes]:
        nonlocal waits, asked
        asked += 1
        document = json.loads(body)
        member = document["member_id"]
        if document["revision"] != f"term/{newest[member]}":
            return 412, json.dumps({"revision": f"term/{newest[member]}"}).encode()
        newest[member] += 1
        if member == "a" and waits:
            waits -= 1
            await asyncio.sleep(5)
            return 202, json.dumps({"revision": f"term/{newest[member]}"}).encode()
        return 200, json.dumps({"revision": f"term/{newest[member]}"}).encode()

    asker._send = send  # type: ignore[method-assign]  # noqa: SLF001 - the route to a coordinator of an older version
    await asker.ask_revised("http://there", "commit", {"group": "g", "member_id": "b"})
    await asker.ask_revised("http://there", "join", {"group": "g", "member_id": "a"}, waits=True)

    assert asked < 20
