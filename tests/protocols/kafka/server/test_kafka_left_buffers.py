"""Receive buffers that connections leave to their batches are bounded, also by connections that come and go."""

import asyncio
from contextlib import suppress

from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.settings import KafkaSettings
from bearlake.serving.slabs import SMALL_BYTES
from fixtures.failing_stores import HeldStore, settings
from fixtures.kafka_server import Make, batch_of
from fixtures.waiting import until

LIMIT_BYTES = 16 * SMALL_BYTES


async def test_clients_that_come_write_and_go_leave_a_bounded_number_of_receive_buffers(kafka_cluster: Make) -> None:
    """Each of their batches keeps 64 KiB until it is sealed, which waits for the object store."""
    store = HeldStore()
    limits = KafkaSettings(receive_bytes_max=LIMIT_BYTES)
    kafka = (await kafka_cluster(1, store=store, settings=limits, streams=settings(puts_in_flight_max=1)))[0]
    await kafka.create("t")
    slabs = kafka.server.connections.slabs
    most = taken = 0
    for _ in range(100):
        client = await kafka.client()
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await client.produce("t", batch_of(b"v"), acks=0)
            await client.ask(m.MetadataRequest(topics=[]), 12)
            taken += 1
        await client.close()
        await until(lambda: not len(kafka.server.connections))
        most = max(most, slabs.used_bytes)

    assert most <= LIMIT_BYTES + 2 * SMALL_BYTES
    assert 16 <= taken < 100
    store.go.set()
    await until(lambda: slabs.used_bytes == 0)
    assert (await (await kafka.client()).ask(m.MetadataRequest(topics=[]), 12)).brokers
