"""The operator's process: it acts only when it leads and has the namespace, and outlives what goes wrong in one of its workers."""

import asyncio
import os
import signal

import pytest

from bearlake_operator.errors import Conflict, Invalid, Unavailable
from bearlake_operator.handlers import loop, owner, resync
from bearlake_operator.handlers.lease import Leadership
from bearlake_operator.handlers.loop import Loop
from bearlake_operator.handlers.process import Operator
from bearlake_operator.handlers.resync import DEAF_COUNT_MAX, Resync, WatchDead
from bearlake_operator.handlers.world import World
from bearlake_operator.kube import Access, Kube
from bearlake_operator.settings import AdminAccess, DataLayer, Settings


@pytest.fixture
async def kube(cluster):
    opened = Kube(Access(server=cluster.url, namespace="lake"))
    yield opened
    await opened.close()


def deployment(name, uid, **metadata):
    return {"kind": "Deployment", "metadata": {"namespace": "lake", "name": name, "uid": uid, **metadata}, "spec": {}}


def owned_by(name, uid):
    return {"ownerReferences": [{"kind": "Deployment", "name": name, "uid": uid}]}


# A namespace has one operator.


async def test_what_another_operator_owns_is_not_touched(cluster, kube):
    own, other = deployment("own-operator", "1"), deployment("other-operator", "2")
    cluster.add(own, other, deployment("bearlake-default-kafka", "3", **owned_by("other-operator", "2")))
    world = World()
    await Resync(kube, world, (), 60).first()

    with pytest.raises(Conflict, match="the namespace lake is that of the operator other-operator"):
        await owner.check(kube, world, await owner.find(kube, "own-operator"))


@pytest.mark.parametrize("uid", ["1", "of a Deployment that has gone"])
async def test_what_is_left_of_an_operator_that_has_gone_is_taken_over(cluster, kube, uid):
    cluster.add(deployment("operator", "1"), deployment("bearlake-default-kafka", "3", **owned_by("operator", uid)))
    world = World()
    await Resync(kube, world, (), 60).first()

    await owner.check(kube, world, await owner.find(kube, "operator"))

    with pytest.raises(Invalid, match="there is no Deployment nobody in lake"):
        await owner.find(kube, "nobody")


def operator_of(cluster):
    layer = DataLayer(settings={}, admin=AdminAccess(secret="token"))
    settings = Settings(image="server", compactor_image="compactor", data_layers={"default": layer})
    return Operator(settings, Access(server=cluster.url, namespace="lake"), host="127.0.0.1", port=0)


async def test_a_process_that_stands_by_ends_when_it_is_asked_to(cluster, monkeypatch):
    standing_by = asyncio.Event()

    async def acquire(self):
        standing_by.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Leadership, "acquire", acquire)
    running = asyncio.ensure_future(operator_of(cluster).run())
    await standing_by.wait()

    os.kill(os.getpid(), signal.SIGTERM)

    assert await running is None


async def test_a_process_that_fails_to_get_the_lease_does_nothing_else(cluster, monkeypatch):
    async def acquire(self):
        raise OSError("no token")

    listed = []

    async def first(self):
        listed.append(True)

    monkeypatch.setattr(Leadership, "acquire", acquire)
    monkeypatch.setattr(Resync, "first", first)

    with pytest.raises(ExceptionGroup) as failure:
        await operator_of(cluster).run()

    assert failure.group_contains(OSError, match="no token")
    assert not listed


# Lists and watches.


async def test_without_their_definition_streams_are_unknown_and_not_none(kube, cluster):
    """An empty list would be that of a cluster whose Streams have all gone, and all tiers with them."""
    cluster.refuse[("GET", "/streams")] = 404

    with pytest.raises(Invalid, match="refused with 404"):
        await Resync(kube, World(), (), 60).first()


@pytest.fixture
def no_grace(monkeypatch):
    monkeypatch.setattr(resync, "GRACE_S", 0)


async def test_a_watch_that_misses_changes_again_and_again_is_dead(kube, cluster, no_grace):
    world = World()
    found = Resync(kube, world, (), 60)
    await found.first()

    for number in range(1, DEAF_COUNT_MAX):
        cluster.add(deployment(f"new-{number}", str(number)))
        await found.check()

    cluster.add(deployment("new", "1"))
    with pytest.raises(WatchDead, match="the watch of Deployment has missed changes"):
        await found.check()


async def test_kinds_that_nobody_watches_are_found_by_listing_and_mean_no_dead_watch(kube, cluster, no_grace):
    """KEDA writes the time of its last activity into the status of a ScaledObject all the time."""
    world = World()
    found = Resync(kube, world, (), 60)
    await found.first()

    for number in range(DEAF_COUNT_MAX + 1):
        scaled = {"metadata": {"namespace": "lake", "name": "one"}, "status": {"lastActiveTime": str(number)}}
        cluster.add({"kind": "ScaledObject", **scaled})
        await found.check()

    assert world.get("ScaledObject", "lake", "one")["status"]["lastActiveTime"] == str(DEAF_COUNT_MAX)


# Workers.


@pytest.mark.parametrize("failure", [KeyError("an answer without a field"), Unavailable("nobody answers")])
async def test_a_worker_goes_on_after_whatever_failed(failure, monkeypatch):
    naps, done = [], asyncio.Event()
    nap = asyncio.sleep

    async def noted(seconds):
        naps.append(seconds)
        await nap(0)

    async def work():
        if len(naps) < 2:
            raise failure
        done.set()
        return 60

    worker = Loop("test", work)
    monkeypatch.setattr(loop.asyncio, "sleep", noted)
    worker.told("Stream", {})
    running = asyncio.ensure_future(worker.run())
    while not done.is_set():
        worker.told("Stream", {})
        await nap(0)
    running.cancel()
    await asyncio.wait({running})

    assert naps[0] == loop.RETRY_FIRST_S
    assert running.cancelled()
