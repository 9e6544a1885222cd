"""A server's knowledge of its own registration: confirmations, and when it expires by two clocks."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from bearlake.errors import Fenced, Unavailable
from bearlake.metadata import Metadata, registering
from bearlake.metadata.model import ServerRef
from bearlake.metadata.open import open_metadata
from bearlake.streams.tenure import HeldLease, Tenure
from fixtures.liveness import lapse
from simulator.loop import virtual_time


class Machine:
    """The clock that continues while the machine is suspended; the loop's clock does not."""

    def __init__(self) -> None:
        self.suspended_s = 0.0

    def boot_time_s(self) -> float:
        return asyncio.get_running_loop().time() + self.suspended_s


@pytest.fixture
async def metadata() -> AsyncIterator[Metadata]:
    store = await open_metadata("memory:///")
    yield store
    await store.close()


async def register(metadata: Metadata, name: str) -> ServerRef:
    return (
        await registering.register(metadata.servers, name, zone=None, endpoints={}, version="", timeout_ms=6_000)
    ).server


@virtual_time
async def test_a_server_is_sure_until_its_timeout_after_the_last_heartbeat_that_it_sent() -> None:
    metadata = await open_metadata("memory:///")
    tenure = Tenure(metadata.servers, await register(metadata, "a"), timeout_ms=6_000, boot_time_s=lambda: 0.0)
    await asyncio.sleep(5.9)
    assert tenure.is_sure()
    await asyncio.sleep(0.2)
    assert not tenure.is_sure()

    await tenure.beat()
    assert tenure.is_sure()
    await metadata.close()


@virtual_time
async def test_a_server_whose_machine_was_suspended_is_not_sure_before_its_next_heartbeat() -> None:
    metadata, machine = await open_metadata("memory:///"), Machine()
    server = await register(metadata, "a")
    tenure = Tenure(metadata.servers, server, timeout_ms=6_000, boot_time_s=machine.boot_time_s)

    machine.suspended_s = 3_600

    assert not tenure.is_sure()
    await tenure.beat()
    assert tenure.is_sure()
    await metadata.close()


async def test_a_confirmation_of_a_lapsed_server_revives_it_first(metadata: Metadata) -> None:
    server = await register(metadata, "a")
    tenure = Tenure(metadata.servers, server)
    assert await lapse(metadata, server)

    assert await tenure.confirm() == 1
    assert [server.ref for server in await metadata.servers.live()] == [server]


async def test_a_registration_that_is_over_confirms_nothing(metadata: Metadata) -> None:
    tenure = Tenure(metadata.servers, await register(metadata, "a"))
    await register(metadata, "a")

    with pytest.raises(Fenced):
        await tenure.confirm()
    with pytest.raises(Fenced):
        await tenure.beat()
    assert not tenure.is_sure()


async def test_a_caller_that_waits_for_a_confirmation_while_the_server_stops_gets_an_error(metadata: Metadata) -> None:
    tenure = Tenure(metadata.servers, await register(metadata, "a"))
    await tenure.confirm()
    waiting = asyncio.create_task(tenure.confirm())
    await asyncio.sleep(0)
    await tenure.close()

    with pytest.raises(Unavailable):
        await waiting


async def test_a_lease_that_no_server_took_is_kept_through_a_lapse(metadata: Metadata) -> None:
    tenure = Tenure(metadata.servers, await register(metadata, "a"))
    held = await HeldLease.take(tenure, metadata.leases, "lease")
    assert await lapse(metadata, tenure.server)
    await tenure.beat()
    assert held.is_unverified

    await held.confirm()

    assert not held.is_unverified


async def test_a_lease_that_was_taken_in_a_lapse_is_lost_although_the_server_is_live_again(metadata: Metadata) -> None:
    tenure = Tenure(metadata.servers, await register(metadata, "a"))
    other = await register(metadata, "b")
    held = await HeldLease.take(tenure, metadata.leases, "lease")
    assert await lapse(metadata, tenure.server)
    await metadata.leases.acquire("lease", other)
    await tenure.beat()

    with pytest.raises(Fenced):
        await held.confirm()


async def test_a_lease_that_was_taken_and_given_back_in_a_lapse_is_lost(metadata: Metadata) -> None:
    tenure = Tenure(metadata.servers, await register(metadata, "a"))
    other = await register(metadata, "b")
    held = await HeldLease.take(tenure, metadata.leases, "lease")
    assert await lapse(metadata, tenure.server)
    await metadata.leases.release(await metadata.leases.acquire("lease", other))

    with pytest.raises(Fenced):
        await held.confirm()
