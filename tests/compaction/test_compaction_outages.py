"""A store that does not answer for a while: every loop of a worker logs the outage once, and its end once."""

import asyncio
import logging
import random
from collections import Counter
from typing import Any

import pytest

from bearlake.clock import ManualClock
from bearlake.compaction.runner import InProcess
from bearlake.compaction.service import Compactor
from bearlake.compaction.workbench import Workbench
from bearlake.metadata import registering
from bearlake.metadata.faulty import FaultyMetadata, MetadataFaults
from bearlake.metadata.open import open_metadata
from bearlake.objects.memory import MemoryObjectStore
from simulator.loop import virtual_time
from simulator.tables import MemoryTables

ALL_IS_WELL, DOWN = MetadataFaults(), MetadataFaults(error_rate=1.0)


def test_a_worker_logs_once_that_a_store_does_not_answer_and_once_that_it_answers_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "bearlake.compaction")

    @virtual_time
    async def body() -> None:
        clock = ManualClock()
        inner = await open_metadata("memory:///", clock=clock)
        metadata: Any = FaultyMetadata(inner, ALL_IS_WELL, random.Random(1))
        store = MemoryObjectStore(clock)
        registration = await registering.register(
            metadata.servers, "w", zone=None, endpoints={}, version="1", timeout_ms=10_000
        )
        tables: Any = MemoryTables(clock)
        compactor = Compactor(
            metadata,
            store,
            tables,
            InProcess(store, Workbench(clock=clock, random_bits=random.Random(2).getrandbits)),
            registration.server,
            clock=clock,
            random_source=random.Random(3),
        )
        running = asyncio.ensure_future(compactor.run())
        for _ in range(2):
            await asyncio.sleep(700)
            metadata.misbehave(DOWN)
            await asyncio.sleep(700)
            metadata.misbehave(ALL_IS_WELL)
        await asyncio.sleep(700)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await compactor.close()
        await inner.close()

    body()

    jobs = ["sweep-wal", "sweep-files", "sweep-orphans", "retention", "tables", "quarantine", "measure"]
    said = Counter((record.levelname, record.message, getattr(record, "job", "")) for record in caplog.records)
    for level, plans, works, keeps in (
        (
            "WARNING",
            "planning failed; retrying",
            "a step of compaction failed; retrying",
            "upkeep failed; retrying",
        ),
        ("INFO", "planning works again", "compaction works again", "upkeep works again"),
    ):
        assert said.pop((level, plans, "")) == 2
        assert said.pop((level, works, "")) == 2
        for job in jobs:
            assert said.pop((level, keeps, job)) == 2
    assert not said
