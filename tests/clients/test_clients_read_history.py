"""Every third-party client reads compacted records from Parquet, past offsets without rows, up to the tail."""

import asyncio
import struct
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

from bearlake import kernel
from bearlake.clock import ManualClock
from bearlake.metadata.model import BATCH_CONTROL, BATCH_TRANSACTIONAL, BatchCommit, ObjectCommit
from bearlake.records.batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL, Compression
from bearlake.records.codec import Record, encode
from bearlake.streams.catalog import StreamView
from clients.messages import Message, by_content
from clients.registry import CLIENTS, Unavailable, obtain
from fixtures.deployment import NOW_MS, Deployment
from fixtures.history import PlanningWorker
from fixtures.kafka_server import Cluster, kafka_cluster  # noqa: F401 - a fixture

pytestmark = [
    pytest.mark.integration,
    # Warnings of third-party libraries are not ours to fix.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]


def marker() -> bytes:
    """A control batch: it takes an offset, but is not a row."""
    raw = bytearray(encode([Record(key=b"\0\0\0\1", value=b"\0\0\0\0\0\0", timestamp=NOW_MS)]))
    struct.pack_into(">h", raw, 21, ATTRIBUTE_CONTROL | ATTRIBUTE_TRANSACTIONAL)
    struct.pack_into(">I", raw, 17, kernel.crc32c(raw, 21))
    return bytes(raw)


async def commit(cluster: Cluster, view: StreamView, number: int, codecs: Sequence[Compression]) -> list[Message]:
    """One object: batches of the codecs, between them a marker; the messages that consumers must get."""
    messages: list[Message] = []
    raws = []
    for codec in codecs:
        records = [
            Record(
                key=b"%d" % at,
                value=b"%d %s %d" % (number, codec.name.encode(), at),
                headers=(("writer", b"history"),),
                timestamp=NOW_MS + number,
            )
            for at in range(20)
        ]
        messages += [Message(record.value, record.key, record.headers) for record in records]
        raws.append((encode(records, codec=codec), len(records), 0))
        raws.append((marker(), 1, BATCH_CONTROL | BATCH_TRANSACTIONAL))
    commits = []
    position = 0
    for raw, count, flags in raws:
        commits.append(BatchCommit(view.partition(0), position, len(raw), count, NOW_MS + number, flags=flags))
        position += len(raw)
    key = f"wal/{number}"
    await cluster.store.put(key, [raw for raw, _, _ in raws])
    server = cluster[0].streams.server
    await cluster.metadata.log.commit(ObjectCommit(token=key, server=server, size=position, batches=commits))
    return messages


@pytest.mark.parametrize("name", list(CLIENTS))
async def test_a_client_reads_segments_and_then_the_tail(kafka_cluster, tmp_path: Path, name: str) -> None:  # type: ignore[no-untyped-def] # noqa: F811
    cluster: Cluster = await kafka_cluster(1)
    try:
        client = await asyncio.to_thread(obtain, name, cluster[0].address, tmp_path)
    except Unavailable as error:
        pytest.skip(str(error))
    await cluster[0].create("history")
    view = await cluster[0].streams.catalog.find("history")
    compactor = PlanningWorker(Deployment(cluster.metadata, cluster.store, ManualClock(NOW_MS)))
    expected = [message for number in range(4) for message in await commit(cluster, view, number, list(Compression))]
    result = await compactor.compact(view)
    await compactor.sweep()
    expected += await commit(
        cluster, view, 4, [codec for codec in Compression if codec.name.lower() in client.compressions]
    )

    read = await asyncio.to_thread(client.consume, "history", f"group-{uuid.uuid4().hex[:8]}", len(expected))

    assert result.row_count == 400
    assert by_content(read) == by_content(expected)
