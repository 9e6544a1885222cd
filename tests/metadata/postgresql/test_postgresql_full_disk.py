"""A PostgreSQL store on a full disk (53100, disk_full): what callers learn, and that a repeat succeeds once there is room."""

from typing import Any

import asyncpg
import pytest

from bearlake.errors import OutOfRoom, Unavailable
from bearlake.metadata.model import ObjectCommit, StreamSpec
from bearlake.metadata.postgresql import failures
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from bearlake.metadata.postgresql.store import PostgresqlMetadata
from fixtures.postgresql_proxy import Proxy

SETTINGS = PostgresqlSettings(connections_max=1, poll_interval_ms=5, connect_timeout_ms=2_000)
FILL = """
create function bearlake.refuse() returns trigger language plpgsql as $$
begin
    raise exception 'could not extend file: No space left on device' using errcode = 'disk_full';
end $$;
create trigger full_disk before insert on bearlake.{table} for each row execute function bearlake.refuse();
"""
"""Lets a table refuse rows as PostgreSQL does when its file cannot grow."""
ENLARGE = "drop trigger full_disk on bearlake.{table}"


async def new_commit(metadata: PostgresqlMetadata, writer_on: Any) -> ObjectCommit:
    stream = await metadata.streams.create(StreamSpec(name="orders", partition_count=1))
    writer = await writer_on.on(metadata)
    await writer.commit(writer.object([stream.partition(0)]))  # its statements are prepared on the connection then
    commit: ObjectCommit = writer.object([stream.partition(0)])
    return commit


async def test_a_commit_without_room_has_not_happened_and_its_repeat_succeeds(
    lossy: tuple[PostgresqlMetadata, Proxy], admin: asyncpg.Connection, writer_on: Any
) -> None:
    metadata, _ = lossy
    commit = await new_commit(metadata, writer_on)
    await admin.execute(FILL.format(table="log"))
    with pytest.raises(OutOfRoom, match=r"is full \(53100\)"):
        await metadata.log.commit(commit)
    await admin.execute(ENLARGE.format(table="log"))

    assert [outcome.base_offset for outcome in (await metadata.log.commit(commit)).outcomes] == [3]


async def test_a_disk_that_is_full_at_the_repeat_does_not_speak_for_the_attempt_that_was_lost(
    lossy: tuple[PostgresqlMetadata, Proxy], admin: asyncpg.Connection, writer_on: Any
) -> None:
    """The commit took effect, its answer was lost, and there is no room for the session of the connection that repeats it."""
    metadata, proxy = lossy
    commit = await new_commit(metadata, writer_on)
    await admin.execute(FILL.format(table="session"))
    proxy.loses_next_answer = True
    with pytest.raises(Unavailable, match="a lost attempt may have happened"):
        await metadata.log.commit(commit)
    await admin.execute(ENLARGE.format(table="session"))

    assert [outcome.base_offset for outcome in (await metadata.log.commit(commit)).outcomes] == [3]


def test_a_connection_that_is_refused_for_want_of_room_has_changed_nothing() -> None:
    """PostgreSQL 15 on a full disk, after a restart: a new connection has no room for a file of its caches."""
    refusal = asyncpg.InternalServerError("could not write init file")

    assert isinstance(failures.translated(refusal), OutOfRoom)
    assert failures.is_refusal(refusal)  # so it says nothing of an attempt before that was lost
    assert not isinstance(failures.translated(asyncpg.InternalServerError("cache lookup failed")), OutOfRoom)
