"""A pooler in transaction mode gives one backend to many connections, so that a session is not its connection's: it is refused."""

import pytest

from bearlake.errors import Unavailable
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
