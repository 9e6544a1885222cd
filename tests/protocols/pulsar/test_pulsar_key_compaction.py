"""Subscriptions of topics with key compaction, with the unmodified Python client: batches of which messages were removed."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from bearlake.clock import SystemClock
from bearlake.compaction.cleaned_files import is_cleaned
from bearlake.compaction.runner import InProcess
from bearlake.compaction.service import Compactor
from bearlake.compaction.stream_index import read_index
from bearlake.compaction.workbench import Workbench
from bearlake.metadata import registering
from bearlake.metadata.model import Stream
from fixtures.cleaned_stream import settings
from fixtures.pulsar_server import Make, PulsarCluster
from simulator.tables import MemoryTables

pulsar_client = pytest.importorskip("pulsar", reason="PULSAR CLIENT NOT TESTED: pip install pulsar-client")
pytestmark = pytest.mark.integration

KEYS = ("a", "b", "a", "c", "b", "a", "d", "a")
NEWEST = [3, 4, 6, 7]
CONFIGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "table.enable": "false",
    "table.freshness_ms": "100",
}


def produce(url: str) -> None:
    """Send one batch."""
    client = pulsar_client.Client(url, operation_timeout_seconds=20)
    producer = client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=1_000)
    for number, key in enumerate(KEYS):
        producer.send_async(b"%d" % number, lambda *_: None, partition_key=key)
    producer.flush()
    client.close()


def consume(url: str, kind: Any, count: int) -> list[int]:
    """Receive and acknowledge as many messages; with -1, until there are no more."""
    client = pulsar_client.Client(url, operation_timeout_seconds=20)
    consumer = client.subscribe("t", "s", consumer_type=kind, initial_position=pulsar_client.InitialPosition.Earliest)
    found = []
    while count < 0 or len(found) < count:
        try:
            message = consumer.receive(timeout_millis=20_000 if count > 0 else 1_500)
        except pulsar_client.Timeout:
            break
        found.append(int(message.data()))
        consumer.acknowledge(message)
    client.close()
    return found


async def clean(cluster: PulsarCluster) -> None:
    """Run a worker until all is cleaned."""
    view = await cluster[0].streams.catalog.find("t")
    registration = await registering.register(
        cluster.metadata.servers, "worker", zone=None, endpoints={}, version="1", timeout_ms=600_000
    )
    compactor = Compactor(
        cluster.metadata,
        cluster.store,
        MemoryTables(SystemClock()),
        InProcess(cluster.store, Workbench()),
        registration.server,
        settings(),
        clock=SystemClock(),
        random_source=random.Random(1),
    )
    work = asyncio.create_task(compactor.run())
    async with asyncio.timeout(60):
        while not await _is_clean(cluster, view.stream):  # noqa: ASYNC110 - the worker has no event for that
            await asyncio.sleep(0.05)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def _is_clean(cluster: PulsarCluster, stream: Stream) -> bool:
    located, _ = await read_index(stream, cluster.metadata)
    return bool(located) and all(is_cleaned(found.object_key) for found in located)


@pytest.mark.parametrize("kind", ["Shared", "KeyShared", "Failover", "Exclusive"])
async def test_a_batch_of_which_messages_were_removed_is_acknowledged_by_those_that_are_left(
    pulsar_cluster: Make, tmp_path: Path, kind: str
) -> None:
    cluster = await pulsar_cluster(1, folder=tmp_path)
    node = cluster[0]
    await node.streams.catalog.create("t", 1, CONFIGS)
    await asyncio.to_thread(produce, node.url)
    await clean(cluster)
    cold = await cluster.add()
    consumer_type = getattr(pulsar_client.ConsumerType, kind)
    first = await asyncio.to_thread(consume, cold.url, consumer_type, len(NEWEST))
    again = await asyncio.to_thread(consume, cold.url, consumer_type, -1)

    assert first == NEWEST
    assert again == []
