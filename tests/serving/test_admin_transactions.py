"""Transactions over the admin API: list, describe, abort; and requests that arrive late."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from bearlake.metadata import Metadata
from bearlake.metadata.model import StreamSpec
from bearlake.serving.admin.server import AdminServer
from bearlake.serving.admin.settings import AdminSettings
from bearlake.serving.admin.transactions import TransactionRoutes
from bearlake.serving.listener import ListenerSettings, open_listener
from bearlake.serving.membership import RegisteredServer, ServerSettings
from bearlake.streams.transactions import TransactionService, TransactionSettings
from bearlake.telemetry import metrics
from fixtures.kafka_server import open_stores

TIMEOUT = aiohttp.ClientTimeout(total=30)


class Api:
    """An admin API, and a client of it."""

    def __init__(self, http: aiohttp.ClientSession, metadata: Metadata, transactions: TransactionService) -> None:
        self.http = http
        self.metadata = metadata
        self.transactions = transactions

    async def call(self, method: str, path: str, body: object = None, **query: str) -> tuple[int, Any]:
        async with self.http.request(method, f"/v1/transactions{path}", json=body, params=query) as response:
            return response.status, await response.json(content_type=None)

    async def names(self, **query: str) -> list[str]:
        status, answer = await self.call("GET", "", **query)
        assert status == 200
        return [item["transactional_id"] for item in answer["transactions"]]

    async def open(self, name: str) -> tuple[int, int]:
        """Begin a transaction with partition 1 of the stream; returns producer id and epoch."""
        producer = await self.transactions.initialize(name, 60_000)
        stream = await self.metadata.streams.get("t")
        await self.transactions.add(name, producer, partitions=[stream.partition(1)], group="g")
        return producer


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with AsyncExitStack() as closing:
        metadata, _ = await open_stores(None, closing)
        await metadata.streams.create(StreamSpec(name="t", partition_count=2))
        transactions = TransactionService(metadata, TransactionSettings())
        member = await RegisteredServer.join(metadata.servers, ServerSettings(name="one"), {})
        listener = open_listener(ListenerSettings(), "admin")
        routes = [TransactionRoutes(metadata, transactions)]
        server = AdminServer(listener, metadata.log, member, AdminSettings(), routes=routes)
        await server.start()
        closing.push_async_callback(server.close)
        url = f"http://{server.endpoints['admin']}"
        http = await closing.enter_async_context(aiohttp.ClientSession(url, timeout=TIMEOUT))
        yield Api(http, metadata, transactions)


async def test_open_transactions_are_listed_page_by_page(api: Api) -> None:
    for name in ("b", "a", "c"):
        await api.open(name)
    await api.transactions.initialize("idle", 60_000)
    _, first = await api.call("GET", "", limit="2")

    assert [item["transactional_id"] for item in first["transactions"]] == ["a", "b"]
    assert first["next"] == "b"
    assert await api.names(after="b") == ["c"]
    assert await api.names(open="false") == ["a", "b", "c", "idle"]
    assert await api.names(age_min_ms=str(10**9)) == []


async def test_a_description_has_partitions_and_groups(api: Api) -> None:
    producer_id, epoch = await api.open("a/b ü")
    status, found = await api.call("GET", "/description", id="a/b ü")

    assert status == 200
    assert found.pop("age_ms") >= 0
    assert found == {
        "transactional_id": "a/b ü",
        "producer_id": producer_id,
        "epoch": epoch,
        "state": "ongoing",
        "timeout_ms": 60_000,
        "groups": ["g"],
        "partitions": [{"stream": "t", "partition": 1, "first_offset": None}],
    }


async def test_a_transactional_id_that_nobody_used_is_not_found(api: Api) -> None:
    assert (await api.call("GET", "/description", id="none"))[0] == 404


async def test_an_abort_ends_the_transaction_and_fences_its_producer(api: Api) -> None:
    producer_id, epoch = await api.open("a")
    asked = {"transactional_id": "a", "producer_id": producer_id, "epoch": epoch}
    status, found = await api.call("POST", "/abort", asked)

    assert status == 200
    assert (found["state"], found["age_ms"], found["epoch"]) == ("complete_abort", None, epoch + 1)
    assert await api.names() == []


async def test_an_abort_that_arrives_late_does_not_end_a_later_transaction(api: Api) -> None:
    producer_id, epoch = await api.open("a")
    await api.open("a")
    status, _ = await api.call("POST", "/abort", {"transactional_id": "a", "producer_id": producer_id, "epoch": epoch})

    assert status == 409
    assert await api.names() == ["a"]


async def test_the_age_of_the_oldest_open_transaction_is_measured(api: Api) -> None:
    await api.open("a")
    now_ms = await api.metadata.now_ms()
    while await api.metadata.now_ms() <= now_ms:
        pass
    await api.transactions.expire()
    age_ms = metrics.TRANSACTIONS_OPEN_AGE.value
    await api.transactions.abort("a", await _producer(api, "a"))
    await api.transactions.expire()

    assert age_ms > 0
    assert metrics.TRANSACTIONS_OPEN_AGE.value == 0


async def _producer(api: Api, name: str) -> tuple[int, int]:
    row, _ = await api.transactions.get(name)
    return row.producer_id, row.epoch
