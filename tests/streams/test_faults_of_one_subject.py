# ruff: noqa: SLF001 - a lease is released at the step that the test says
"""A bug in the code of one caller, group or subscription: all others are served, and the clients concerned get an answer."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bearlake.errors import NotFound
from bearlake.metadata.open import open_metadata
from bearlake.metadata.registering import register
from bearlake.streams.append import AppendCall, Verdict
from bearlake.streams.groups.coordinator import Coordinator
from bearlake.streams.groups.model import JoinRequest
from bearlake.streams.groups.ownership import Ownership
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.subscriptions.model import Closed, EntryTraits
from bearlake.streams.upkeep import Upkeep, UpkeepSettings
from bearlake.telemetry import metrics
from fixtures.deployment import append, append_of, batch_of, create, deployment, submit, verdicts_of
from fixtures.failing_stores import SlowStore, settings
from fixtures.groups import RANGE, ref
from fixtures.subscriptions import Consumer, KeyReader, attach, lake
from simulator.loop import virtual_time


def broken(_: object = None) -> None:
    """A callback with a bug."""
    raise RuntimeError("a bug")


def fault_count(step: str) -> float:
    """How many bugs the metric counts for a step."""
    return metrics.CONTAINED_FAULTS.labels(step).value


# -- the write path --------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_caller_whose_answer_fails_at_its_deadline_does_not_affect_the_answers_of_others() -> None:
    async with deployment(SlowStore(10.0)) as stores:
        streams = await stores.serve(settings(deadline_ms=1_000))
        view = await create(streams)
        closed: list[Exception] = []
        before = fault_count("answer an append")

        streams.submit(AppendCall([append_of(view, batch_of(b"a"))], broken, 0, closed.append))
        other = submit(streams, view, batch_of(b"b"))
        async with asyncio.timeout(2):
            results = await other

        assert verdicts_of(results) == ["UNAVAILABLE"]
        assert [str(error) for error in closed] == ["a bug"]
        assert fault_count("answer an append") == before + 1


@virtual_time
async def test_a_caller_whose_answer_fails_stops_neither_the_others_of_its_object_nor_the_server() -> None:
    async with deployment(SlowStore(0.1)) as stores:
        streams = await stores.serve(settings())
        view = await create(streams)

        streams.submit(AppendCall([append_of(view, batch_of(b"a"))], broken, 0))
        other = submit(streams, view, batch_of(b"b"))
        async with asyncio.timeout(1):
            results = await other

        assert verdicts_of(results) == ["ACCEPTED"]
        assert verdicts_of(await append(streams, view, batch_of(b"c"))) == ["ACCEPTED"]


@virtual_time
async def test_a_connection_that_fails_does_not_stop_the_others() -> None:
    async with deployment(SlowStore(1.0)) as stores:
        streams = await stores.serve(settings(bytes_max=3_000, object_bytes_max=1_500))
        view = await create(streams)
        relieved: list[str] = []
        waiting = []
        while not streams.is_over_budget:
            waiting.append(submit(streams, view, batch_of(b"x" * 900)))
        streams.on_relief(broken)
        streams.on_relief(lambda: relieved.append("the other"))

        async with asyncio.timeout(30):
            results = [(await task)[0][0] for task in waiting]

        assert set(results) == {Verdict.ACCEPTED}
        assert relieved == ["the other"]


@virtual_time
async def test_a_buffer_that_cannot_be_sealed_stops_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batches are lost. A later batch of the same producer must not be stored without them, so the server ends."""
    async with deployment(SlowStore(0.1)) as stores:
        ended: list[str] = []
        streams = await stores.serve(settings(deadline_ms=1_000), on_unknown=lambda: ended.append("stops"))
        view = await create(streams)
        with monkeypatch.context() as patched:
            patched.setattr("bearlake.streams.writer.seal", lambda buffer, server, **_: broken())
            lost = submit(streams, view, batch_of(b"a"))
            await asyncio.sleep(0.1)

        later = await append(streams, view, batch_of(b"b"))

        assert ended == ["stops"]
        assert verdicts_of(later) == ["SERVER_FENCED"]
        assert verdicts_of(await lost) == ["UNAVAILABLE"]


@virtual_time
async def test_a_failed_notification_about_a_changed_stream_does_not_affect_other_listeners() -> None:
    async with deployment() as stores:
        streams = await stores.serve(settings())
        told: list[str] = []
        streams.catalog.on_change |= {broken}
        for number in range(5):  # a set has no order
            streams.catalog.on_change.add(lambda number=number: told.append(str(number)))  # type: ignore[misc]

        await streams.create(ANONYMOUS, "orders", 1, {})

        assert set(told) == set("01234")


# -- groups ----------------------------------------------------------------------------------------------------------


class BrokenGroups:
    """A metadata store whose groups cannot be saved."""

    def __init__(self, inner: Any, error: Exception) -> None:
        self._inner = inner
        self._error = error
        self.groups: Any = self
        self.is_broken = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name) if hasattr(self._inner, name) else getattr(self._inner.groups, name)

    async def save(self, *arguments: Any) -> None:
        if self.is_broken:
            raise self._error
        await self._inner.groups.save(*arguments)


JOIN = JoinRequest(
    member_id="",
    instance_id=None,
    client_id="c",
    client_host="/h",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=60_000,
    protocol_type="consumer",
    protocols=RANGE,
    requires_known_id=False,
    can_skip_assignment=False,
)


@pytest.mark.parametrize("error", [RuntimeError("a bug"), NotFound("no such group")], ids=["bug", "NotFound"])
def test_members_are_answered_when_the_save_of_their_group_ends_in_an_unknown_error(error: Exception) -> None:
    @virtual_time
    async def body() -> None:
        metadata = await open_metadata("memory:///")
        store: Any = BrokenGroups(metadata, error)
        found = await register(metadata.servers, "1", zone=None, endpoints={}, version="", timeout_ms=6_000)
        coordinator = Coordinator(store, Ownership(store, found.server, GroupSettings(initial_rebalance_delay_ms=0)))
        joined = await coordinator.join("g", JOIN)
        sync = (ref("g", joined.member_id, None, joined.generation), (None, None), {joined.member_id: b"all"})

        with pytest.raises(GroupRefusal) as refused:
            async with asyncio.timeout(600):
                await coordinator.sync(*sync)
        store.is_broken = False
        synced = await coordinator.sync(*sync)

        assert refused.value.problem is Problem.COORDINATOR_UNAVAILABLE
        assert synced.assignment == b"all"
        await coordinator.ownership.close()
        await metadata.close()

    body()


# -- subscriptions ---------------------------------------------------------------------------------------------------


class BrokenReader(KeyReader):
    """An entry reader with a bug for one entry."""

    def traits(self, batch: memoryview) -> EntryTraits:
        if b"poison" in bytes(batch):
            broken()
        return super().traits(batch)


@virtual_time
async def test_a_bug_in_one_entry_ends_its_subscription_and_no_other() -> None:
    async with lake() as made:
        streams, service = await made.serve()
        victim = await attach(service, made.partition, subscription="victim", reader=BrokenReader())
        other = await attach(service, made.partition, subscription="other")

        await append(streams, made.view, batch_of(b"poison"))
        await victim.until(lambda: bool(victim.closings))
        await append(streams, made.view, batch_of(b"b"))

        assert victim.closings == [Closed.FAILED]
        assert await other.got(2) == [0, 1]


@virtual_time
async def test_a_partition_whose_release_meets_a_bug_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise this server would keep the lease forever and deliver nothing: its consumers would wait."""
    async with lake() as made:
        streams, service = await made.serve()
        consumer = await attach(service, made.partition)
        leases = made.stores.metadata.leases
        with monkeypatch.context() as patched:
            patched.setattr(leases, "release", lambda lease: broken())
            await service._holdings.leave(service._holdings.all()[0], Closed.MOVED)

        again = await attach(service, made.partition)
        await append(streams, made.view, batch_of(b"a"))

        assert consumer.closings == [Closed.MOVED]
        assert await again.got(1) == [0]


@virtual_time
async def test_a_consumer_that_cannot_be_closed_does_not_keep_others_open() -> None:
    class Broken(Consumer):
        def closed(self, reason: Closed) -> None:
            broken()

    async with lake() as made:
        _, service = await made.serve()
        await attach(service, made.partition, consumer=Broken())
        other = await attach(service, made.partition, name="other")

        await service.drain()

        assert other.closings == [Closed.MOVED]


# -- rounds over many subjects ---------------------------------------------------------------------------------------


@virtual_time
async def test_a_stream_whose_configs_cannot_be_parsed_stops_no_server() -> None:
    async with deployment() as stores:
        writer = await stores.serve(settings())
        await create(writer, "a")
        bad, good = await create(writer, "bad"), await create(writer, "c")
        inner = stores.metadata.streams

        class Broken:
            """A catalog that returns configs of one stream that cannot be parsed."""

            def __getattr__(self, name: str) -> Any:
                return getattr(inner, name)

            async def list(self, **options: Any) -> Any:
                found = await inner.list(**options)
                return [
                    replace(stream, configs={"max.message.bytes": "large"}) if stream.name == "bad" else stream
                    for stream in found
                ]

        broken: Any = Broken()
        stores.metadata.streams = broken
        before = fault_count("read a stream")
        streams = await stores.serve(settings())

        assert list(streams.catalog.names()) == ["a", "c"]
        assert verdicts_of(await append(streams, good, batch_of(b"a"))) == ["ACCEPTED"]
        assert fault_count("read a stream") == before + 1
        stores.metadata.streams = inner
        assert verdicts_of(await append(writer, bad, batch_of(b"b"))) == ["ACCEPTED"]


@virtual_time
async def test_a_bug_in_one_job_of_upkeep_does_not_stop_the_others() -> None:
    async with deployment() as stores:
        inner = stores.metadata.log

        class Broken:
            def __getattr__(self, name: str) -> Any:
                return getattr(inner, name)

            async def maintain(self, **_: Any) -> int:
                raise KeyError("a bug")

        log: Any = Broken()
        upkeep = asyncio.create_task(Upkeep(log, stores.metadata.producers, UpkeepSettings()).run())
        await asyncio.sleep(300)

        assert not upkeep.done()
        assert await stores.metadata.producers.advance_clock(-1) >= 3
        upkeep.cancel()
        await asyncio.wait([upkeep])
