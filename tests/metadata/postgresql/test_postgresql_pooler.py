"""A pooler in transaction mode lends one backend to many connections, so a session does not belong to one connection: the store refuses
such a pooler."""

import asyncpg
import pytest

from bearlake.errors import Unavailable
from bearlake.metadata.postgresql.connection import Connections
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from fixtures.postgresql import execute
from fixtures.postgresql_metadata import Opening
from fixtures.postgresql_pooler import TransactionPooler

SETTINGS = PostgresqlSettings(connections_max=1, read_connections_max=1, statement_cache_count=0)


async def test_a_pooler_in_transaction_mode_is_refused_before_the_first_write(
    postgresql_url: str, opened: Opening
) -> None:
    await (await opened(postgresql_url)).close()  # the layout is there
    before = await execute(postgresql_url, "select count(*) from bearlake.session")
    pooler = TransactionPooler(postgresql_url)
    url = await pooler.start()
    try:
        with pytest.raises(Unavailable, match="session mode"):
            await opened(url)
    finally:
        await pooler.stop()

    assert await execute(postgresql_url, "select count(*) from bearlake.session") == before


async def test_a_connection_that_its_pooler_has_forgotten_does_not_keep_its_backend_forever(
    postgresql_url: str,
) -> None:
    """In session mode, a pooler gives the backend of a client that has gone to the next client. This process does not
    see the session end."""
    pooler = TransactionPooler(postgresql_url)
    url = await pooler.start()
    made = Connections()
    try:
        former = await made.connect(url, statement_cache_size=0)
        pooler.forget()
        assert not former.is_closed()

        with pytest.raises(asyncpg.InterfaceError, match="session mode"):
            await made.connect(url, statement_cache_size=0)
        again = await made.connect(url, statement_cache_size=0)

        assert former.is_closed()
        assert await again.fetchval("select 1") == 1
        again.terminate()
    finally:
        await pooler.stop()


async def test_neither_of_two_connections_with_one_backend_is_used(postgresql_url: str) -> None:
    """Both would write in the session that began last, and ending one connection's session would not stop late writes of the other."""
    pooler = TransactionPooler(postgresql_url)
    url = await pooler.start()
    made = Connections()
    try:
        connection = await made.connect(url, statement_cache_size=0)
        with pytest.raises(asyncpg.InterfaceError):
            await made.connect(url, statement_cache_size=0)

        assert connection.is_closed()
    finally:
        await pooler.stop()
