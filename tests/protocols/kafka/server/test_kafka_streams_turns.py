"""A large streams group is described in turns of the event loop (KIP-1071)."""

import asyncio
from types import SimpleNamespace

from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.handlers import streams_describe
from bearlake.streams.groups.tasks.model import StreamsGroup, StreamsMember, TaskId, Tasks


async def test_others_run_while_a_large_group_is_described(monkeypatch):
    group = StreamsGroup(name="g")
    for number in range(1_000):
        tasks = dict.fromkeys((TaskId("0", 10 * number + index) for index in range(10)), 2)
        group.add(StreamsMember(member_id=f"m{number}", process_id="p", active=tasks))
        group.target[f"m{number}"] = Tasks(frozenset(tasks))

    async def found(name):
        return group

    context = SimpleNamespace(streams_groups=SimpleNamespace(describe=found), streams=None)
    monkeypatch.setattr(streams_describe, "may_describe", lambda *_: True)
    work = asyncio.create_task(streams_describe.describe(context, None, m.StreamsGroupDescribeRequest(group_ids=["g"])))
    turn_count = 0
    while not work.done():
        turn_count += 1
        await asyncio.sleep(0)

    (answer,) = (await work).groups
    assert [member.member_id for member in answer.members] == list(group.members)
    assert turn_count > 5
