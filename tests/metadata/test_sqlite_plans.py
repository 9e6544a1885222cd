"""Plans of SQLite's statements for transactions: each finds its rows by an index, however many transactions are open (decision 315)."""

from typing import Any

from bearlake.metadata.model import CommittedOffset
from bearlake.streams.transactions import TransactionService, TransactionSettings
from fixtures.store_producer import Producer

SMALL = ("json_each", "store", "CONSTANT", "k")
"""What may be read in full: a statement's own list, a table of one row, and one row of constants (`k`)."""


async def test_the_statements_of_transactions_use_indexes(sqlite_backend: Any, new_scene: Any) -> None:
    scene = await new_scene(sqlite_backend)
    stream = await scene.stream(partition_count=3)
    partitions = [stream.partition(index) for index in range(3)]
    lease = await scene.metadata.leases.acquire("group/g", scene.server)
    writer = scene.metadata._database.writer  # noqa: SLF001
    statements: list[str] = []
    writer.set_trace_callback(statements.append)
    service = TransactionService(scene.metadata, TransactionSettings())
    producer = await Producer(scene, is_v2=False).begin()
    who = producer.row.producer_id, producer.row.epoch
    for is_commit in (True, False):
        await service.add("copier", who, partitions=partitions, group="g")
        await producer.write(*partitions)
        offsets = {partitions[0]: CommittedOffset(offset=1)}
        await service.keep_offsets("copier", who, "g", offsets, lambda put: put(lease), begins=False)
        await service.end("copier", who, is_commit=is_commit, bumps=False)
    writer.set_trace_callback(None)

    for statement in {text for text in statements if text.startswith(("SELECT", "INSERT", "UPDATE", "DELETE"))}:
        for *_, step in writer.execute(f"EXPLAIN QUERY PLAN {statement}"):
            assert not step.startswith("SCAN ") or step.split()[1] in SMALL, (step, statement)
    assert sum("open_transactions" in text for text in statements) >= 8
