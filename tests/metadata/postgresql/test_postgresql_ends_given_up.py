"""The end of a transaction on PostgreSQL is given up, or its answer is lost, at each step of the statement that stores it.

A client was promised: its request ends the transaction that was ongoing, once, and never the next one, which may have the same epoch.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from bearlake.errors import Unavailable
from bearlake.metadata import Metadata, registering, transaction_rules
from bearlake.metadata.model import (
    BATCH_TRANSACTIONAL,
    BatchCommit,
    ObjectCommit,
    PartitionBounds,
    PartitionKey,
    ServerRef,
    StreamSpec,
)
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from bearlake.metadata.transactions import End, Transaction
from bearlake.streams.transactions import TransactionService, TransactionSettings
from fixtures.postgresql_metadata import Opening, outcome_of
from fixtures.postgresql_proxy import Proxy
from fixtures.postgresql_switch import At, Switch
from fixtures.waiting import WAIT_S

SETTINGS = PostgresqlSettings(
    connections_max=1,
    lock_timeout_ms=200,
    connect_timeout_ms=100_000,
    acquire_timeout_ms=100_000,
    statement_timeout_ms=100_000,
    poll_interval_ms=5,
)
"""Only a row that is locked ends a statement, however busy the machine is."""


@dataclass
class Client:
    """A producer of transactions of KIP-98, which share an epoch, and a store that it reaches without a proxy."""

    metadata: Metadata
    server: ServerRef
    key: PartitionKey
    who: tuple[int, int] = (-1, -1)
    sequence: int = 0

    @classmethod
    async def on(cls, metadata: Metadata) -> "Client":
        stream = await metadata.streams.create(StreamSpec(name="orders", partition_count=1))
        registered = await registering.register(
            metadata.servers, "a", zone=None, endpoints={}, version="1", timeout_ms=600_000
        )
        client = cls(metadata, registered.server, stream.partition(0))
        client.who = await client.service.initialize("copier", 60_000)
        return client

    @property
    def service(self) -> TransactionService:
        return TransactionService(self.metadata, TransactionSettings())

    async def begin(self) -> None:
        """Begin a transaction, and write a record."""
        await self.service.add("copier", self.who, partitions=[self.key])
        batch = BatchCommit(self.key, 0, 10, 1, 0, *self.who, self.sequence, BATCH_TRANSACTIONAL)
        self.sequence += 1
        token = f"wal/{self.sequence:04}"
        commit = ObjectCommit(token=token, server=self.server, size=10, batches=[batch], is_transactional=True)
        await self.metadata.log.commit(commit)

    async def end(self, metadata: Metadata) -> None:
        service = TransactionService(metadata, TransactionSettings())
        await service.end("copier", self.who, is_commit=True, bumps=False)

    async def bounds(self) -> PartitionBounds:
        return (await self.metadata.log.bounds([self.key]))[self.key]


@pytest.fixture
async def switch(postgresql_url: str) -> AsyncIterator[Switch]:
    switch = Switch(postgresql_url)
    yield switch
    await switch.stop()


@pytest.mark.parametrize("at", At)
async def test_an_end_that_is_given_up_does_not_end_the_next_transaction(
    at: At, postgresql_url: str, opened: Opening, switch: Switch
) -> None:
    client = await Client.on(await opened(postgresql_url))
    slow = await opened(await switch.start())
    await client.begin()
    switch.hold("end_transaction", at)
    given_up = asyncio.ensure_future(client.end(slow))
    await switch.held.wait()
    given_up.cancel()
    await asyncio.wait([given_up])
    async with asyncio.timeout(WAIT_S):
        while isinstance(await outcome_of(client.end(client.metadata)), Unavailable):  # the row is locked
            switch.deliver()
    await client.begin()
    switch.deliver()
    async with asyncio.timeout(WAIT_S):
        while isinstance(await outcome_of(slow.transactions.forget("nobody", 1)), Unavailable):
            pass  # no earlier write comes later

    assert await client.bounds() == (0, 3, 2)  # a record, its marker, and a record of the transaction that is open
    await slow.close()


async def test_an_end_whose_answer_is_lost_may_have_happened_and_its_repeat_is_answered(
    postgresql_url: str, opened: Opening
) -> None:
    proxy = Proxy(postgresql_url)
    store = await opened(await proxy.start())
    client = await Client.on(store)
    await client.begin()
    await client.end(store)  # the statement is prepared on the connection then
    await client.begin()

    def commit(held: Transaction | None) -> End:
        proxy.loses_next_answer = True
        step = transaction_rules.end(held, client.who, -1, is_commit=True, bumps=False)
        assert isinstance(step, End)
        return step

    with pytest.raises(Unavailable):  # a conflict would say that nothing was stored
        await store.transactions.change("copier", commit)
    assert not proxy.loses_next_answer
    await client.end(store)

    assert await client.bounds() == (0, 4, 4)
    await store.close()
    await proxy.stop()
