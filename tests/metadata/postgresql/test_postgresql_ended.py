"""PostgreSQL ends an idle connection with a message (at a restart), and the next statement arrives before the connection is closed."""

from contextlib import AsyncExitStack

from bearlake.errors import Unavailable
from bearlake.metadata.model import StreamSpec
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from fixtures.postgresql_metadata import Opening, outcome_of
from fixtures.postgresql_proxy import Proxy

SETTINGS = PostgresqlSettings(connections_max=1, read_connections_max=1, poll_interval_ms=5)


async def test_a_read_on_a_connection_that_has_ended_is_repeated(postgresql_url: str, opened: Opening) -> None:
    async with AsyncExitStack() as stack:
        proxy = Proxy(postgresql_url)
        store = await opened(await proxy.start(), SETTINGS)
        stack.push_async_callback(proxy.stop)
        stack.push_async_callback(store.close)
        await store.streams.list()  # so that the next answer is one message of the server
        proxy.ends_after_next_answer = True
        await store.streams.list()

        assert not await store.streams.list()


async def test_a_write_on_an_ended_connection_fails_once_with_the_reason(postgresql_url: str, opened: Opening) -> None:
    async with AsyncExitStack() as stack:
        proxy = Proxy(postgresql_url)
        store = await opened(await proxy.start(), SETTINGS)
        stack.push_async_callback(proxy.stop)
        stack.push_async_callback(store.close)
        await store.streams.create(StreamSpec(name="a", partition_count=1))
        proxy.ends_after_next_answer = True
        await store.streams.create(StreamSpec(name="b", partition_count=1))
        refused = await outcome_of(store.streams.create(StreamSpec(name="c", partition_count=1)))
        assert isinstance(refused, Unavailable)
        assert str(refused) == "the metadata store cannot be reached: it has ended the connection"
        await store.streams.create(StreamSpec(name="c", partition_count=1))

        assert [stream.name for stream in await store.streams.list()] == ["a", "b", "c"]
