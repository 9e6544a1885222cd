"""A Fetch that does not wait sees what its server has acknowledged, also where other records are at hand (decisions 247, 295)."""

import asyncio

import pytest

from bearlake.protocols.kafka.handlers.fetch import READ_COMMITTED
from fixtures.kafka_server import batch_of, fetch_request, values_of
from fixtures.late_follower import delay, wait_for_question
from fixtures.transactional import TransactionalWriter


@pytest.mark.parametrize(("wait_ms", "bytes_min"), [(0, 1), (0, 0), (60_000, 0)])
async def test_a_fetch_that_does_not_wait_sees_a_transaction_beside_records_at_hand(kafka, wait_ms, bytes_min):
    client = await kafka.client()
    await kafka.create("t", 2)
    writer = await TransactionalWriter.of(kafka.streams, "t")
    await writer.send(b"committed")
    assert (await client.produce("t", batch_of(b"at hand"), index=1)).error_code == 0
    request = fetch_request([("t", 0, 0), ("t", 1, 0)], wait_ms=wait_ms, bytes_min=bytes_min)
    request.isolation_level = READ_COMMITTED
    open_one, other = (await client.ask(request, 11)).responses[0].partitions
    assert (values_of(open_one.records), values_of(other.records)) == ([], [(0, b"at hand")])
    log = delay(kafka.streams)
    await writer.end()

    asked = asyncio.create_task(client.ask(request, 11))
    await wait_for_question(kafka.streams)
    log.opened.set()

    committed, other = (await asked).responses[0].partitions
    assert values_of(committed.records)[0] == (0, b"committed")
    assert values_of(other.records) == [(0, b"at hand")]


@pytest.mark.parametrize(("wait_ms", "bytes_min"), [(0, 1), (0, 0), (60_000, 0)])
async def test_a_fetch_of_all_records_that_does_not_wait_sees_a_batch_beside_records_at_hand(kafka, wait_ms, bytes_min):
    client = await kafka.client()
    await kafka.create("t", 2)
    writer = await TransactionalWriter.of(kafka.streams, "t")
    await writer.send(b"first")
    assert (await client.produce("t", batch_of(b"at hand"), index=1)).error_code == 0
    request = fetch_request([("t", 0, 1), ("t", 1, 0)], wait_ms=wait_ms, bytes_min=bytes_min)
    assert values_of((await client.ask(request, 11)).responses[0].partitions[1].records) == [(0, b"at hand")]
    log = delay(kafka.streams)
    await writer.send(b"second")

    asked = asyncio.create_task(client.ask(request, 11))
    await wait_for_question(kafka.streams)
    log.opened.set()

    second, other = (await asked).responses[0].partitions
    assert values_of(second.records) == [(1, b"second")]
    assert values_of(other.records) == [(0, b"at hand")]
