"""All reads, including those of compaction, continue while the database accepts no writes."""

from collections.abc import Awaitable, Callable, Mapping

import asyncpg
import pytest

from bearlake.errors import Unavailable
from bearlake.metadata import Metadata
from bearlake.metadata.compaction import OffsetRange
from bearlake.metadata.faulty import READS
from bearlake.metadata.model import ObjectKind, ServerRef, Stream, StreamSpec
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from bearlake.metadata.schemas import Deletion, SubjectKey, VersionKey
from fixtures.postgresql_metadata import Opening

SETTINGS = PostgresqlSettings(connections_max=1, poll_interval_ms=5)
NOUNS = (
    "log",
    "streams",
    "servers",
    "leases",
    "groups",
    "producers",
    "tasks",
    "objects",
    "cursors",
    "schemas",
    "defaults",
    "users",
    "access",
    "quotas",
    "transactions",
    "table_columns",
)
WAITS_FOR_LOST_WRITES = {"tasks.check", "transactions.get"}
"""They change nothing, but a table commit, or the answer to a repeated request, rests on what they return."""


def reads_of(metadata: Metadata, stream: Stream, server: ServerRef) -> Mapping[str, Callable[[], Awaitable[object]]]:
    """Every method that changes nothing, by its name and noun."""
    key, number = stream.partition(0), stream.number
    log, streams, servers, tasks = metadata.log, metadata.streams, metadata.servers, metadata.tasks
    objects, schemas, subject = metadata.objects, metadata.schemas, SubjectKey("", "orders-value")
    transactions = metadata.transactions
    return {
        "cluster_id": metadata.cluster_id,
        "now_ms": metadata.now_ms,
        "log.follow": lambda: log.follow(0, limit=10),
        "log.wait": lambda: log.wait(0, wait_ms=1),
        "log.head": log.head,
        "log.bounds": lambda: log.bounds([key]),
        "log.usage": lambda: log.usage([key]),
        "log.locate": lambda: log.locate(key, 0, limit=1),
        "log.locate_timestamp": lambda: log.locate_timestamp(key, 0),
        "log.locate_max_timestamp": lambda: log.locate_max_timestamp(key),
        "log.producers": lambda: log.producers(key),
        "log.slices": lambda: log.slices([OffsetRange(key, 0, 1)]),
        "streams.newest": lambda: streams.newest("orders"),
        "streams.get": lambda: streams.get("orders"),
        "streams.list": streams.list,
        "streams.by_numbers": lambda: streams.by_numbers([number]),
        "streams.incarnations": streams.incarnations,
        "servers.last_epoch": lambda: servers.last_epoch("a"),
        "servers.lapse_count": lambda: servers.lapse_count(server),
        "servers.live": servers.live,
        "leases.holder": lambda: metadata.leases.holder("x"),
        "leases.holders": lambda: metadata.leases.holders(["x"]),
        "groups.load": lambda: metadata.groups.load("g"),
        "groups.offsets": lambda: metadata.groups.offsets("g"),
        "groups.list": metadata.groups.list,
        "tasks.list": tasks.list,
        "tasks.uncompacted": lambda: tasks.uncompacted(after=key, limit=1),
        "tasks.backlog": tasks.backlog,
        "tasks.commits": tasks.commits,
        "tasks.compacted": lambda: tasks.compacted([key]),
        "objects.unused": lambda: objects.unused(ObjectKind.WAL, after="", unused_ms=0, limit=1),
        "objects.data_files": lambda: objects.data_files(number),
        "cursors.load": lambda: metadata.cursors.load(key),
        "cursors.list": lambda: metadata.cursors.list(number),
        "cursors.deletion_count": lambda: metadata.cursors.deletion_count(key),
        "schemas.subject": lambda: schemas.subject(subject),
        "schemas.schemas": lambda: schemas.schemas("", [1]),
        "schemas.by_fingerprint": lambda: schemas.by_fingerprint(b"x" * 32),
        "schemas.subjects": lambda: schemas.subjects(context=None, deletion=Deletion.LIVE, limit=1),
        "schemas.versions": lambda: schemas.versions(context=None, deletion=Deletion.LIVE, limit=1),
        "schemas.usages": lambda: schemas.usages("", 1, limit=1),
        "schemas.some_usages": lambda: schemas.some_usages("", 1, limit=1),
        "schemas.referrers": lambda: schemas.referrers(VersionKey(subject, 1)),
        "schemas.contexts": schemas.contexts,
        "schemas.last_id": lambda: schemas.last_id(""),
        "defaults.get": lambda: metadata.defaults.get("x"),
        "users.get": lambda: metadata.users.get("x"),
        "users.list": metadata.users.list,
        "users.revision": metadata.users.revision,
        "access.revision": metadata.access.revision,
        "access.read": metadata.access.read,
        "quotas.revision": metadata.quotas.revision,
        "quotas.read": metadata.quotas.read,
        "transactions.owners": lambda: transactions.owners([1]),
        "transactions.list": transactions.list,
        "transactions.open_offsets": lambda: transactions.open_offsets(partition=key),
        "transactions.isolation": lambda: transactions.isolation([key]),
        "transactions.pending": lambda: transactions.pending("g"),
        "table_columns.get": lambda: metadata.table_columns.get(number),
    }


async def test_every_read_continues_while_nothing_can_be_written(
    postgresql_url: str, opened: Opening, admin: asyncpg.Connection, writer_on: type
) -> None:
    first = await opened(postgresql_url)
    stream = await first.streams.create(StreamSpec(name="orders", partition_count=1))
    writer = await writer_on.on(first)  # type: ignore[attr-defined]
    await writer.commit(writer.object([stream.partition(0)]))
    database = await admin.fetchval("select current_database()")
    await admin.execute(f"alter database {database} set default_transaction_read_only = on")
    store = await opened(postgresql_url)
    reads = reads_of(store, stream, writer.server)
    for name, read in reads.items():
        try:
            await read()
        except Unavailable as error:
            raise AssertionError(f"{name} cannot be answered") from error
    with pytest.raises(Unavailable, match="25006"):
        await store.producers.allocate(1)

    known = {f"{noun}.{name}" for noun in NOUNS for name in dir(getattr(store, noun)) if name in READS}
    assert known <= {*reads, *WAITS_FOR_LOST_WRITES}
