"""Faults of PostgreSQL and of its connections: nothing is lost or stored twice, and no foreign error is raised."""

import asyncio
import inspect
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from bearlake.errors import BearlakeError, Fenced, Unavailable
from bearlake.metadata import Metadata, registering
from bearlake.metadata.compaction import OffsetRange, Swap, SwapObject, TaskClaim, TaskKind, TaskOffer
from bearlake.metadata.model import (
    CommittedOffset,
    GroupSnapshot,
    Lease,
    ObjectCommit,
    ObjectKind,
    ObjectRef,
    PartitionKey,
    ServerRef,
    Slice,
    Stream,
    StreamSpec,
)
from bearlake.metadata.postgresql.database import Database
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from bearlake.metadata.postgresql.store import open_postgresql
from bearlake.metadata.schemas import Deletion, Registration, SubjectKey, VersionKey
from bearlake.metadata.subscriptions import CursorSave, CursorUpdate
from bearlake.metadata.transactions import Put, Transaction
from bearlake.metadata.users import CredentialChange
from fixtures.postgresql import PostgresqlServer
from fixtures.postgresql_proxy import Proxy
from fixtures.waiting import WAIT_S

SETTINGS = PostgresqlSettings(connections_max=3, poll_interval_ms=5, listen_backoff_min_ms=5, listen_backoff_max_ms=20)
P = PartitionKey(1 << 20)
SERVER = ServerRef(node_id=0, epoch=1)
LEASE = Lease(name="x", holder=SERVER, epoch=1)
CLAIM = TaskClaim(task_id=1, epoch=1, worker=SERVER)
TRANSACTION = Transaction(transactional_id="x", producer_id=1, epoch=0, timeout_ms=1)
STREAM = Stream(name="x", id=uuid.UUID(int=1), number=1, partition_count=1, configs={}, created_ms=0)
SUBJECT = SubjectKey(".", "orders")
SCHEMA = Registration(subject=SUBJECT, revision=0, fingerprint=b"f" * 16, body=b"b" * 16, content="{}")

STEPS: dict[str, Callable[[Metadata], Awaitable[object]]] = {
    "streams.create": lambda m: m.streams.create(StreamSpec(name="x", partition_count=1)),
    "streams.newest": lambda m: m.streams.newest("x"),
    "streams.get": lambda m: m.streams.get("x"),
    "streams.list": lambda m: m.streams.list(),
    "streams.alter": lambda m: m.streams.alter(1, set_configs={}, unset_configs=[], version=1),
    "streams.add_partitions": lambda m: m.streams.add_partitions(1, 2),
    "streams.terminate": lambda m: m.streams.terminate(1),
    "streams.delete": lambda m: m.streams.delete(1),
    "streams.by_numbers": lambda m: m.streams.by_numbers([1]),
    "streams.incarnations": lambda m: m.streams.incarnations(),
    "objects.forbid": lambda m: m.objects.forbid(["data/1"]),
    "servers.last_epoch": lambda m: m.servers.last_epoch("x"),
    "servers.register": lambda m: m.servers.register("x", zone=None, endpoints={}, version="1", timeout_ms=1),
    "servers.heartbeat": lambda m: m.servers.heartbeat(SERVER),
    "servers.lapse_count": lambda m: m.servers.lapse_count(SERVER),
    "servers.lapse": lambda m: m.servers.lapse(SERVER, 0),
    "servers.drain": lambda m: m.servers.drain(SERVER),
    "servers.leave": lambda m: m.servers.leave(SERVER),
    "servers.live": lambda m: m.servers.live(),
    "log.commit": lambda m: m.log.commit(ObjectCommit(token="t", server=SERVER, size=1, batches=[])),
    "log.follow": lambda m: m.log.follow(0, limit=1),
    "log.wait": lambda m: m.log.wait(10, wait_ms=10),
    "log.head": lambda m: m.log.head(),
    "log.bounds": lambda m: m.log.bounds([P]),
    "log.usage": lambda m: m.log.usage([P]),
    "log.locate": lambda m: m.log.locate(P, 0, limit=1),
    "log.locate_timestamp": lambda m: m.log.locate_timestamp(P, 0),
    "log.locate_max_timestamp": lambda m: m.log.locate_max_timestamp(P),
    "log.trim": lambda m: m.log.trim(P, 0),
    "log.producers": lambda m: m.log.producers(P),
    "log.forbid": lambda m: m.log.forbid(["t"]),
    "log.slices": lambda m: m.log.slices([OffsetRange(P, 0, 1)]),
    "log.swap": lambda m: m.log.swap(Swap(claim=CLAIM, objects=[])),
    "log.retain": lambda m: m.log.retain(STREAM, [0], before_ms=0, size_max=0),
    "log.maintain": lambda m: m.log.maintain(entry_count_min=0),
    "producers.allocate": lambda m: m.producers.allocate(1),
    "producers.named": lambda m: m.producers.named(P, "n"),
    "producers.raise_epoch": lambda m: m.producers.raise_epoch(P, LEASE),
    "producers.share_epoch": lambda m: m.producers.share_epoch(P, "l"),
    "producers.advance_clock": lambda m: m.producers.advance_clock(-1),
    "producers.expire": lambda m: m.producers.expire(idle_ms=0, limit=1),
    "groups.load": lambda m: m.groups.load("g"),
    "groups.save": lambda m: m.groups.save(GroupSnapshot(group="g", protocol_type="consumer", state=b""), LEASE),
    "groups.commit_offsets": lambda m: m.groups.commit_offsets("g", {P: CommittedOffset(offset=1)}, LEASE),
    "groups.offsets": lambda m: m.groups.offsets("g"),
    "groups.delete_offsets": lambda m: m.groups.delete_offsets("g", [P], LEASE),
    "groups.delete": lambda m: m.groups.delete("g", LEASE),
    "groups.list": lambda m: m.groups.list(),
    "leases.acquire": lambda m: m.leases.acquire("l", SERVER),
    "leases.holder": lambda m: m.leases.holder("l"),
    "leases.holders": lambda m: m.leases.holders(["l"]),
    "leases.release": lambda m: m.leases.release(LEASE),
    "table_columns.get": lambda m: m.table_columns.get(1),
    "table_columns.set": lambda m: m.table_columns.set(1, "{}", version=0),
    "tasks.offer": lambda m: m.tasks.offer([], LEASE),
    "tasks.claim": lambda m: m.tasks.claim(SERVER, limit=1, bytes_max=1),
    "tasks.check": lambda m: m.tasks.check([CLAIM]),
    "tasks.prepare": lambda m: m.tasks.prepare(CLAIM, b"", ["data/1"]),
    "tasks.release": lambda m: m.tasks.release([CLAIM]),
    "tasks.fail": lambda m: m.tasks.fail(CLAIM, "x", retry_after_ms=0, is_quarantined=False),
    "tasks.cancel": lambda m: m.tasks.cancel(CLAIM),
    "tasks.retry": lambda m: m.tasks.retry(1),
    "tasks.list": lambda m: m.tasks.list(),
    "tasks.uncompacted": lambda m: m.tasks.uncompacted(after=PartitionKey(0), limit=1),
    "tasks.backlog": lambda m: m.tasks.backlog(),
    "tasks.commits": lambda m: m.tasks.commits(),
    "tasks.compacted": lambda m: m.tasks.compacted([P]),
    "objects.unused": lambda m: m.objects.unused(ObjectKind.WAL, unused_ms=0),
    "objects.deleted": lambda m: m.objects.deleted(["t"]),
    "objects.data_files": lambda m: m.objects.data_files(1),
    "defaults.get": lambda m: m.defaults.get("x"),
    "defaults.set": lambda m: m.defaults.set("x", {}, version=0),
    "schemas.subject": lambda m: m.schemas.subject(SUBJECT, b"b" * 16),
    "schemas.schemas": lambda m: m.schemas.schemas(".", [1]),
    "schemas.by_fingerprint": lambda m: m.schemas.by_fingerprint(b"f" * 16),
    "schemas.register": lambda m: m.schemas.register(SCHEMA),
    "schemas.delete": lambda m: m.schemas.delete(SUBJECT, [1], is_permanent=False, revision=0),
    "schemas.set_config": lambda m: m.schemas.set_config(SUBJECT, "x", revision=0),
    "schemas.set_mode": lambda m: m.schemas.set_mode(SUBJECT, "x", revision=0),
    "schemas.subjects": lambda m: m.schemas.subjects(context=None, deletion=Deletion.ALL, limit=1),
    "schemas.versions": lambda m: m.schemas.versions(context=None, deletion=Deletion.ALL, limit=1),
    "schemas.usages": lambda m: m.schemas.usages(".", 1, limit=1),
    "schemas.some_usages": lambda m: m.schemas.some_usages(".", 1, limit=1),
    "schemas.referrers": lambda m: m.schemas.referrers(VersionKey(SUBJECT, 1)),
    "schemas.contexts": lambda m: m.schemas.contexts(),
    "schemas.last_id": lambda m: m.schemas.last_id("."),
    "cursors.create": lambda m: m.cursors.create(P, "s", mark_delete=0, properties={}, after=0),
    "cursors.deletion_count": lambda m: m.cursors.deletion_count(P),
    "cursors.load": lambda m: m.cursors.load(P),
    "cursors.save": lambda m: m.cursors.save([CursorSave(P, [CursorUpdate("s", 0, b"", 1)], LEASE)]),
    "cursors.delete": lambda m: m.cursors.delete(P, {"s": 0}, LEASE, after=0),
    "cursors.list": lambda m: m.cursors.list(1),
    "transactions.get": lambda m: m.transactions.get("x"),
    "transactions.owners": lambda m: m.transactions.owners([1]),
    "transactions.change": lambda m: m.transactions.change("x", lambda held: Put(TRANSACTION)),
    "transactions.put": lambda m: m.transactions.put(TRANSACTION, 0),
    "transactions.put_offsets": lambda m: m.transactions.put_offsets(
        TRANSACTION, 1, "g", {P: CommittedOffset(offset=1)}, LEASE
    ),
    "transactions.end": lambda m: m.transactions.end(TRANSACTION, 1, is_commit=True),
    "transactions.forget": lambda m: m.transactions.forget("x", 1),
    "transactions.list": lambda m: m.transactions.list(),
    "transactions.open_offsets": lambda m: m.transactions.open_offsets(partition=P),
    "transactions.isolation": lambda m: m.transactions.isolation([P]),
    "transactions.pending": lambda m: m.transactions.pending("g"),
    "users.get": lambda m: m.users.get("u"),
    "users.list": lambda m: m.users.list(),
    "users.revision": lambda m: m.users.revision(),
    "users.change": lambda m: m.users.change([CredentialChange("u", "SCRAM-SHA-256", None)], revision=0),
    "users.decoy_key": lambda m: m.users.decoy_key(),
    "access.revision": lambda m: m.access.revision(),
    "access.read": lambda m: m.access.read(),
    "access.change": lambda m: m.access.change(created=[], deleted=[], revision=0),
    "quotas.revision": lambda m: m.quotas.revision(),
    "quotas.read": lambda m: m.quotas.read(),
    "quotas.change": lambda m: m.quotas.change([], revision=0),
    "cluster_id": lambda m: m.cluster_id(),
}


@pytest.fixture
async def metadata(postgresql_url: str) -> AsyncIterator[Metadata]:
    store = await open_postgresql(postgresql_url, SETTINGS)
    yield store
    await store.close()


async def partitions_of(metadata: Metadata, count: int) -> list[PartitionKey]:
    stream = await metadata.streams.create(StreamSpec(name="orders", partition_count=count))
    return [stream.partition(i) for i in range(count)]


async def assert_log_is_dense(
    metadata: Metadata, commit_count: int, partitions: list[PartitionKey], records: int
) -> None:
    """Positions without gaps, offsets without gaps, and exactly so many commits."""
    entries = (await metadata.log.follow(0, limit=100_000)).entries
    ends = dict.fromkeys(partitions, 0)
    for slice_ in (slice_ for entry in entries for slice_ in entry.slices):
        assert slice_.base_offset == ends[slice_.partition]
        ends[slice_.partition] = slice_.end_offset
    bounds = await metadata.log.bounds(partitions)

    assert [entry.position for entry in entries] == list(range(1, len(entries) + 1))
    assert len([entry for entry in entries if entry.object_key]) == commit_count
    assert set(ends.values()) == {commit_count * records} == {bound.end for bound in bounds.values()}


def test_every_operation_has_a_step_here() -> None:
    nouns = {name: noun for name, noun in Metadata.__annotations__.items() if name != "__doc__"}
    operations = {
        f"{name}.{operation}"
        for name, noun in nouns.items()
        for operation, function in vars(noun).items()
        if inspect.iscoroutinefunction(function) and not operation.startswith("_")
    }

    assert operations | {"cluster_id"} == set(STEPS)


async def test_no_foreign_error_leaks_while_the_server_is_down(
    metadata: Metadata, postgresql_server: PostgresqlServer
) -> None:
    postgresql_server.kill()
    results = {name: await outcome_of(step(metadata)) for name, step in STEPS.items()}
    postgresql_server.start()

    assert {name: type(result) for name, result in results.items()} == dict.fromkeys(STEPS, Unavailable)
    assert all(isinstance(result, Unavailable) and result.__cause__ is not None for result in results.values())


async def test_no_step_on_an_empty_store_fails_for_a_reason_of_the_store(metadata: Metadata) -> None:
    results = {name: await outcome_of(step(metadata)) for name, step in STEPS.items()}

    assert not {name: result for name, result in results.items() if isinstance(result, Unavailable)}
    assert all(isinstance(result, BearlakeError) for result in results.values() if isinstance(result, Exception))


async def outcome_of(step: Awaitable[object]) -> object:
    (result,) = await asyncio.gather(step, return_exceptions=True)
    return result


async def until(connection: asyncpg.Connection, query: str) -> Any:
    """Ask until the first field of the answer is neither null nor zero."""
    while not (value := await connection.fetchval(query)):
        pass
    return value


async def test_opening_without_a_server_is_unavailable_and_shows_no_password() -> None:
    with pytest.raises(Unavailable) as raised:
        await open_postgresql("postgresql://user:hidden-word@127.0.0.1:1/name", SETTINGS)

    assert "hidden-word" not in repr(raised.value)
    assert "hidden-word" not in repr(raised.value.__cause__)


@pytest.mark.parametrize("is_crash", [False, True], ids=["restart", "crash"])
async def test_commits_across_a_restart_are_neither_lost_nor_doubled(
    is_crash: bool, metadata: Metadata, postgresql_server: PostgresqlServer, writer_on: Any
) -> None:
    partitions = await partitions_of(metadata, 40)
    writers = [await writer_on.on(metadata, f"server-{i}") for i in range(3)]
    restarted = asyncio.Event()

    async def write(writer: Any) -> None:
        while not restarted.is_set() or writer.object_count < 20:
            committed = await writer.commit(writer.object(partitions, producer=writer.server.node_id))
            assert committed.position > 0

    async def restart() -> None:
        for count in (10, 30):
            while sum(writer.object_count for writer in writers) < count:
                await metadata.log.wait(1 << 60, wait_ms=1)
            await asyncio.to_thread(postgresql_server.restart, crash=is_crash)
        restarted.set()

    async with asyncio.TaskGroup() as group:
        for writer in writers:
            group.create_task(write(writer))
        group.create_task(restart())

    assert sum(writer.unanswered_count for writer in writers) > 0
    await assert_log_is_dense(metadata, sum(writer.object_count for writer in writers), partitions, 3)


async def test_a_backend_terminated_while_it_commits_is_asked_again(
    metadata: Metadata, postgresql_url: str, writer_on: Any
) -> None:
    partitions = await partitions_of(metadata, 3)
    writer = await writer_on.on(metadata)
    admin = await asyncpg.connect(postgresql_url)
    async with admin.transaction():
        await admin.execute("select from bearlake.log_head for update")  # the commit waits here
        async with asyncio.TaskGroup() as group:
            running = group.create_task(metadata.log.commit(writer.object(partitions)))
            pid = await until(admin, "select pid from pg_locks where not granted limit 1")
            await admin.execute("select pg_terminate_backend($1)", pid)
            await until(admin, f"select not exists (select from pg_locks where pid = {pid})")
            await admin.execute("rollback; begin")
    await admin.close()

    assert running.result().position == 2
    await assert_log_is_dense(metadata, 1, partitions, 3)


async def test_a_commit_whose_answer_is_lost_gets_its_first_result(postgresql_url: str, writer_on: Any) -> None:
    proxy = Proxy(postgresql_url)
    metadata = await open_postgresql(
        await proxy.start(), PostgresqlSettings(connections_max=1, connect_timeout_ms=2_000)
    )
    partitions = await partitions_of(metadata, 3)
    writer = await writer_on.on(metadata)
    await writer.commit(writer.object(partitions, producer=7))  # the statement is prepared on the connection then
    proxy.loses_next_answer = True
    committed = await metadata.log.commit(writer.object(partitions, producer=7))

    assert not proxy.loses_next_answer
    assert committed.position == 3
    assert [outcome.base_offset for outcome in committed.outcomes] == [3, 3, 3]
    await assert_log_is_dense(metadata, 2, partitions, 3)
    await metadata.close()
    await proxy.stop()


async def test_a_swap_whose_answer_is_lost_gets_its_first_result(postgresql_url: str, writer_on: Any) -> None:
    proxy = Proxy(postgresql_url)
    metadata = await open_postgresql(
        await proxy.start(), PostgresqlSettings(connections_max=1, connect_timeout_ms=2_000)
    )
    (key,) = await partitions_of(metadata, 1)
    writer = await writer_on.on(metadata)
    lease = await metadata.leases.acquire("compaction/planner", writer.server)
    positions = []
    for turn in range(2):  # the first prepares the statements on the connection
        await writer.commit(writer.object([key]))
        range_ = OffsetRange(key, 3 * turn, 3 * turn + 3)
        offer = TaskOffer(
            kind=TaskKind.COMPACT, stream_number=1, ranges=[range_], size_bytes=1, record_count=3, age_ms=0
        )
        await metadata.tasks.offer([offer], lease)
        (task,) = await metadata.tasks.claim(writer.server, limit=1, bytes_max=1)
        segment = Slice(key, range_.start, 3, 0, 100, 1_000)
        file = SwapObject(object=ObjectRef(f"data/{turn}", 1, ObjectKind.PARQUET), slices=[segment])
        claim = TaskClaim(task_id=task.id, epoch=task.epoch, worker=writer.server)
        await metadata.tasks.prepare(claim, None, [file.object.key])
        proxy.loses_next_answer = turn == 1
        positions.append(await metadata.log.swap(Swap(claim=claim, objects=[file])))

    assert not proxy.loses_next_answer
    assert positions == [3, 5]
    assert await metadata.log.head() == 5
    assert await metadata.tasks.compacted([key]) == {key: 6}
    await metadata.close()
    await proxy.stop()


async def test_a_lock_that_is_not_given_in_time_is_unavailable(postgresql_url: str, writer_on: Any) -> None:
    metadata = await open_postgresql(postgresql_url, PostgresqlSettings(lock_timeout_ms=50))
    partitions = await partitions_of(metadata, 1)
    writer = await writer_on.on(metadata)
    admin = await asyncpg.connect(postgresql_url)
    async with admin.transaction():
        await admin.execute("select from bearlake.partition_group for update")
        with pytest.raises(Unavailable, match="55P03"):
            await metadata.log.commit(writer.object(partitions))
    await admin.close()
    await metadata.close()


async def test_when_all_connections_are_busy_a_step_is_unavailable_in_time(postgresql_url: str) -> None:
    metadata = await open_postgresql(postgresql_url, PostgresqlSettings(read_connections_max=1, acquire_timeout_ms=30))
    admin = await asyncpg.connect(postgresql_url)
    async with admin.transaction():
        await admin.execute("lock table bearlake.log_head in access exclusive mode")
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(metadata.log.head())
            await until(admin, "select count(*) from pg_locks where not granted")
            with pytest.raises(Unavailable):
                await metadata.log.head()
            await admin.execute("rollback; begin")
    await admin.close()
    await metadata.close()

    assert waiting.result() == 0


async def test_waiting_continues_after_the_listening_connection_was_lost(
    metadata: Metadata, postgresql_url: str, writer_on: Any
) -> None:
    partitions = await partitions_of(metadata, 1)
    other = await open_postgresql(postgresql_url, SETTINGS)
    writer = await writer_on.on(other)
    admin = await asyncpg.connect(postgresql_url)
    listening = "select pid from pg_stat_activity where query ilike 'listen%' and pid <> pg_backend_pid()"
    for turn in range(3):
        async with asyncio.TaskGroup() as group:
            group.create_task(metadata.log.wait(turn + 1, wait_ms=20_000))
            pid = await until(admin, listening)
            await admin.execute("select pg_terminate_backend($1)", pid)
            await writer.commit(writer.object(partitions))

    assert await metadata.log.head() == 4
    await admin.close()
    await other.close()


async def test_waiting_is_woken_by_a_notification_without_polling(postgresql_url: str, writer_on: Any) -> None:
    never = PostgresqlSettings(poll_interval_ms=3_600_000, poll_interval_listening_ms=3_600_000)
    metadata = await open_postgresql(postgresql_url, never)
    other = await open_postgresql(postgresql_url, SETTINGS)
    partitions = await partitions_of(other, 1)
    writer = await writer_on.on(other)
    admin = await asyncpg.connect(postgresql_url)
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        group.create_task(metadata.log.wait(1, wait_ms=3_600_000))
        await until(admin, "select 1 from pg_stat_activity where query ilike 'listen%' and state = 'idle'")
        await writer.commit(writer.object(partitions))
    await admin.close()
    await other.close()
    await metadata.close()


async def test_a_refusal_of_a_repetition_does_not_speak_for_the_attempt_that_was_lost(
    postgresql_backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit of offsets took effect, its answer was lost, and another server has the lease when it is repeated."""
    store, peer = await postgresql_backend.open(), await postgresql_backend.open()
    stream = await peer.streams.create(StreamSpec(name="t", partition_count=1))
    first, second = [
        (await registering.register(peer.servers, name, zone=None, endpoints={}, version="1", timeout_ms=60_000)).server
        for name in ("first", "second")
    ]
    lease = await store.leases.acquire("group/g", first)
    key, real, attempts = stream.partition(0), Database._run, []

    async def losing(database: Database, *given: Any) -> Any:
        attempts.append(given)
        rows = await real(database, *given)
        if len(attempts) == 1:
            monkeypatch.setattr(Database, "_run", real)
            await peer.leases.release(lease)
            await peer.leases.acquire("group/g", second)
            raise ConnectionResetError
        return rows

    monkeypatch.setattr(Database, "_run", losing)
    with pytest.raises(Unavailable):  # any other kind means that nothing was committed
        await store.groups.commit_offsets("g", {key: CommittedOffset(offset=7)}, lease)

    assert (await peer.groups.offsets("g"))[key].offset == 7
    with pytest.raises(Fenced):
        await store.groups.commit_offsets("g", {key: CommittedOffset(offset=8)}, lease)
    assert (await peer.groups.offsets("g"))[key].offset == 7
