"""A migration that breaks older programs stops their writes by itself: decision 101."""

import pytest

from bearlake.errors import Unsupported
from bearlake.metadata.model import StreamSpec
from bearlake.metadata.postgresql.migrate import Migration, available, migrate
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from fixtures.postgresql_metadata import Opening

SETTINGS = PostgresqlSettings(connections_max=2, poll_interval_ms=5)
BREAKING = Migration(
    available()[-1].version + 1,
    "breaking",
    """
create or replace function bearlake.begin_session(p_id bigint) returns void language plpgsql as $$
begin
    raise exception 'the layout needs a newer version of Bearlake' using errcode = 'BL012';
end $$;
delete from bearlake.session;
""",
)


async def test_older_programs_read_and_write_nothing_after_a_migration_that_breaks_them(
    postgresql_url: str, opened: Opening
) -> None:
    older = await opened(postgresql_url)
    await older.streams.create(StreamSpec(name="orders", partition_count=1))
    other = await opened(postgresql_url)
    await migrate(other._database, [*available(), BREAKING])

    for _ in range(2):
        with pytest.raises(Unsupported, match="newer version"):
            await older.streams.create(StreamSpec(name="bills", partition_count=1))
        assert [stream.name for stream in await older.streams.list()] == ["orders"]
    with pytest.raises(Unsupported):
        await opened(postgresql_url)
