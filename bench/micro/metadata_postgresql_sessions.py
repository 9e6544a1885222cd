"""The database's CPU per commit, with the triggers that fence given-up writes (decision 70) and without them.

    .venv/bin/python bench/micro/metadata_postgresql_sessions.py [--commits 20] [--rounds 300] [--partitions 1]

Starts its own PostgreSQL with two stores, one of them without the triggers. One connection to each store commits objects with a batch
for each partition. Short rounds of the two stores alternate; Linux reports the backends' time on a processor (/proc/PID/schedstat).
Other load on the machine slows both rounds of a pair, so the median of the pairs' ratios
is valid on a busy machine too.
"""

import argparse
import asyncio
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from bearlake.metadata import registering
from bearlake.metadata.model import BatchCommit, ObjectCommit, ServerRef, StreamSpec
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from bearlake.metadata.postgresql.store import PostgresqlMetadata, open_postgresql
from fixtures.postgresql import PostgresqlServer, execute

DROP = """
do $$ declare t text; begin
    for t in select c.relname from pg_trigger g join pg_class c on c.oid = g.tgrelid
              where g.tgname = 'fence' and c.relnamespace = 'bare'::regnamespace loop
        execute 'drop trigger fence on bare.' || quote_ident(t);
    end loop;
end $$"""


class Committer:
    """A store with one connection that writes, and the backend of this connection."""

    def __init__(self, store: PostgresqlMetadata, server: ServerRef, batches: list[BatchCommit], pid: int) -> None:
        self.store = store
        self.server = server
        self.batches = batches
        self.pid = pid
        self.count = 0

    @classmethod
    async def on(cls, url: str, schema: str, partition_count: int) -> "Committer":
        """A store in its own schema."""
        store = await open_postgresql(f"{url}?schema={schema}", PostgresqlSettings(connections_max=1))
        stream = await store.streams.create(StreamSpec(name="bench", partition_count=partition_count))
        registration = await registering.register(
            store.servers, "bench", zone=None, endpoints={}, version="", timeout_ms=600_000
        )
        batches = [
            BatchCommit(stream.partition(i), i * 100, 100, 10, 1_700_000_000_000) for i in range(partition_count)
        ]
        pid = (await execute(url, f"select pid from {schema}.session"))[0]["pid"]
        return cls(store, registration.server, batches, pid)

    async def microseconds(self, commit_count: int) -> float:
        """The backend's time per commit, over this many commits."""
        await self.store.log.maintain(entry_count_min=1)
        before = _processor_ns(self.pid)
        for _ in range(commit_count):
            self.count += 1
            size = 100 * len(self.batches)
            await self.store.log.commit(
                ObjectCommit(token=f"wal/{self.count:012}", server=self.server, size=size, batches=self.batches)
            )
        return (_processor_ns(self.pid) - before) / commit_count / 1000


async def measure(url: str, *, commit_count: int, round_count: int, partition_count: int) -> list[tuple[float, float]]:
    """Microseconds of the backend per commit, with the triggers and without them, one pair per two rounds."""
    fenced = await Committer.on(url, "fenced", partition_count)
    bare = await Committer.on(url, "bare", partition_count)
    await execute(url, DROP)
    found = [
        (await fenced.microseconds(commit_count), await bare.microseconds(commit_count)) for _ in range(round_count)
    ]
    await fenced.store.close()
    await bare.store.close()
    return found[round_count // 10 :]  # the first rounds warm up


def _processor_ns(pid: int) -> int:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=20, help="per round")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--partitions", type=int, default=1)
    options = parser.parse_args()
    server = PostgresqlServer()
    try:
        server.start()
        found = asyncio.run(
            measure(
                server.url(),
                commit_count=options.commits,
                round_count=options.rounds,
                partition_count=options.partitions,
            )
        )
    finally:
        server.remove()
    ratios = sorted(with_triggers / without for with_triggers, without in found)
    median, low, high = (statistics.quantiles(ratios, n=20)[at] for at in (9, 4, 14))
    quiet = [sorted(times)[len(times) // 10] for times in zip(*found, strict=True)]
    print(f"triggers: {median - 1:+.1%} of a commit's CPU (half of the pairs: {low - 1:+.1%} to {high - 1:+.1%})")
    print(
        f"quietest tenth: with triggers {quiet[0]:.1f} µs per commit, without {quiet[1]:.1f} ({quiet[0] / quiet[1] - 1:+.1%})"
    )


if __name__ == "__main__":
    main()
