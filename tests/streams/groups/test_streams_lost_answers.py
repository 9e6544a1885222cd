"""Members of streams groups whose answers got lost: they report what they have, and learn again what they should have (KIP-1071)."""

from dataclasses import replace

from bearlake.streams.groups.consumer.model import MemberState
from bearlake.streams.groups.tasks.model import Endpoint, StreamsHeartbeat
from fixtures.consumer_groups import Topics
from fixtures.streams_groups import SETTINGS, StreamsScene
from simulator.loop import virtual_time


async def lose(scene, client, **changes):
    """Beat, and lose the answer."""
    asked = StreamsHeartbeat(member_id=client.id, epoch=client.epoch, owned=client.tasks)
    return await scene.ask(replace(asked, **changes))


@virtual_time
async def test_tasks_of_a_new_epoch_are_told_again():
    scene = StreamsScene()
    a, b = await scene.join("a"), await scene.join("b")
    await scene.settle(a, b)
    await scene.beat(b, epoch=-1)
    lost = await lose(scene, a)
    assert len(lost.tasks.active) == 4

    await scene.beat(a)

    assert (a.epoch, len(a.active())) == (lost.epoch, 4)
    assert (await scene.beat(a)).tasks is None


@virtual_time
async def test_tasks_that_came_late_in_an_epoch_are_told_again():
    scene = StreamsScene()
    a, b = await scene.join("a"), await scene.join("b")
    await scene.beat(a)
    await scene.beat(b)
    await scene.beat(a)
    assert (b.epoch, b.active()) == (3, [])
    assert len((await lose(scene, b)).tasks.active) == 2

    await scene.beat(b)

    assert (b.epoch, len(b.active())) == (3, 2)


@virtual_time
async def test_a_member_is_told_again_what_to_give_up():
    scene = StreamsScene()
    a = await scene.join("a")
    b = await scene.join("b")
    assert len((await lose(scene, a)).tasks.active) == 2
    assert scene.group.members["a"].state is MemberState.UNREVOKED

    await scene.beat(a)

    assert len(a.active()) == 2
    await scene.settle(a, b)

    assert (len(a.active()), len(b.active())) == (2, 2)


@virtual_time
async def test_standbys_are_told_again():
    scene = StreamsScene(Topics(**{"in": 2}), replace(SETTINGS, num_standby_replicas=1))
    a, b = await scene.join("a"), await scene.join("b")
    await scene.beat(a)
    await lose(scene, a)

    await scene.beat(a)

    await scene.settle(a, b)
    for client in (a, b):
        assert client.tasks == scene.group.target[client.id]


@virtual_time
async def test_what_is_told_again_is_no_news_for_others():
    scene = StreamsScene()
    a = await scene.join("a", endpoint=Endpoint("h", 1))
    b = await scene.join("b", endpoint=Endpoint("h", 2))
    await scene.settle(a, b)
    await scene.beat(a, epoch=-1)
    await lose(scene, b)
    known = scene.group.endpoint_epoch

    await scene.beat(b)

    assert (len(b.active()), scene.group.endpoint_epoch) == (4, known)
