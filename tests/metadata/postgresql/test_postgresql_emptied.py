"""The store that the behaviour suite empties between tests is then as a new one: rows, sequences, tables, triggers and functions."""

from typing import Any

import asyncpg

from bearlake.metadata.model import StreamSpec
from fixtures import by_name
from fixtures.postgresql_catalog import catalog
from fixtures.postgresql_metadata import OTHERS, SEQUENCES, TABLES, Emptied, PostgresqlBackend

OF_A_STORE = {"bearlake.cluster", "bearlake.session", "bearlake.migration"}
"""Tables of which the number of rows is compared: they hold random numbers, processes and times."""


async def contents(url: str) -> dict[str, Any]:
    """Open and close a store; return what is in its tables and sequences, and its catalog."""
    backend = PostgresqlBackend(url)
    await backend.open()
    await backend.close()
    connection = await asyncpg.connect(url)
    try:
        found: dict[str, Any] = {}
        for (name,) in await connection.fetch(TABLES):
            rows = [str(row) for (row,) in await connection.fetch(f"select t from bearlake.{name} t")]
            found[name] = len(rows) if f"bearlake.{name}" in OF_A_STORE else sorted(rows)
        for name, _ in await connection.fetch(SEQUENCES):
            found[name] = tuple(await connection.fetchrow(f"select last_value, is_called from bearlake.{name}"))
        found["others"] = len(await connection.fetch(OTHERS))
        return {**found, "catalog": await catalog(connection)}
    finally:
        await connection.close()


async def test_an_emptied_store_is_as_a_new_one(
    postgresql_url: str,
    emptied_postgresql_backend: PostgresqlBackend,
    emptied_store: Emptied,
    writer_on: Any,
) -> None:
    new = await contents(postgresql_url)
    backend = emptied_postgresql_backend
    store = await backend.open()
    await backend.advance(5_000)
    writer = await writer_on.on(store)
    stream = await by_name.create(store, StreamSpec(name="orders", partition_count=2))
    await writer.commit(writer.object([stream.partition(0), stream.partition(1)]))
    await store.defaults.set("topic", {"retention.ms": "1"}, version=(await store.defaults.get("topic")).version)
    await (await backend.fresh()).open()
    await backend.close()
    used = await contents(backend.database_url)

    await emptied_store.empty()

    assert all(used[name] != new[name] for name in ("stream", "others", "log_head", "test_clock", "stream_number_seq"))
    assert await contents(backend.database_url) == new
