"""Idle producers in SQLite while another process writes."""

import asyncio
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from bearlake.clock import ManualClock
from bearlake.metadata import registering
from bearlake.metadata.model import BatchCommit, ObjectCommit, StreamSpec
from bearlake.metadata.open import open_metadata
from bearlake.metadata.sqlite.store import SqliteMetadata
from fixtures.idle_producers import pass_minutes


async def test_producers_expire_although_another_process_commits_whenever_the_file_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, clock = f"sqlite:///{tmp_path}/store.db", ManualClock()
    store, peer = await open_metadata(url, clock=clock), await open_metadata(url, clock=clock)
    assert isinstance(store, SqliteMetadata)
    key = (await store.streams.create(StreamSpec(name="orders", partition_count=1))).partition(0)
    server = (
        await registering.register(store.servers, "a", zone=None, endpoints={}, version="", timeout_ms=1_000)
    ).server
    (producer,) = await store.producers.allocate(1)
    tokens = iter(range(1_000))

    async def commit(producer_id: int) -> None:
        batches = [BatchCommit(key, 0, 10, 1, 0, producer_id, 0, 0, 0)]
        await peer.log.commit(ObjectCommit(token=f"wal/{next(tokens)}", server=server, size=10, batches=batches))

    await commit(producer)
    await store.log.maintain(entry_count_min=0)
    await pass_minutes(store, 2)
    loop, writing = asyncio.get_running_loop(), store._database.writing  # noqa: SLF001 - a lock that is free for a moment

    def writing_after_the_peer() -> AbstractContextManager[Any]:
        asyncio.run_coroutine_threadsafe(commit(-1), loop).result(10)
        return writing()

    monkeypatch.setattr(store._database, "writing", writing_after_the_peer)  # noqa: SLF001
    expired = await store.producers.expire(idle_ms=0, limit=100)

    assert expired == 1
    assert await peer.log.producers(key) == []
    await store.close()
    await peer.close()
