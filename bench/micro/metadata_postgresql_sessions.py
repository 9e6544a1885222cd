"""The database's CPU per commit, with the triggers that fence given-up writes (decision 70) and without them.

    .venv/bin/python bench/micro/metadata_postgresql_sessions.py [--commits 300] [--rounds 16] [--partitions 1]

Starts a PostgreSQL of its own. One connection commits objects with a batch for each partition; rounds with and without the triggers take
turns, and the backend's time on a processor is read from Linux (/proc/PID/schedstat). The quietest round of each counts: other load on the
machine empties caches, which makes rounds slower and never faster.
"""

import argparse
import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from bearlake.metadata import registering
from bearlake.metadata.model import BatchCommit, ObjectCommit, StreamSpec
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from bearlake.metadata.postgresql.store import open_postgresql
from fixtures.postgresql import PostgresqlServer, execute

SWITCH = """
do $$ declare t text; begin
    for t in select c.relname from pg_trigger g join pg_class c on c.oid = g.tgrelid where g.tgname = 'fence' loop
        execute 'alter table bearlake.' || quote_ident(t) || ' {} trigger fence';
    end loop;
end $$"""


async def measure(url: str, *, commit_count: int, round_count: int, partition_count: int) -> dict[str, list[float]]:
    """Microseconds of the backend per commit, by state of the triggers, one number per round."""
    store = await open_postgresql(url, PostgresqlSettings(connections_max=1))
    stream = await store.streams.create(StreamSpec(name="bench", partition_count=partition_count))
    server = (
        await registering.register(store.servers, "bench", zone=None, endpoints={}, version="", timeout_ms=600_000)
    ).server
    pid = (await execute(url, "select pid from bearlake.session"))[0]["pid"]
    batches = [BatchCommit(stream.partition(i), i * 100, 100, 10, 1_700_000_000_000) for i in range(partition_count)]
    found: dict[str, list[float]] = {"enable": [], "disable": []}
    turn = 0
    for at in range(round_count + 1):
        for state, figures in found.items():
            await execute(url, SWITCH.format(state))
            await store.log.maintain(entry_count_min=1)
            before = _processor_ns(pid)
            for _ in range(commit_count):
                turn += 1
                await store.log.commit(
                    ObjectCommit(token=f"wal/{turn:012}", server=server, size=100 * partition_count, batches=batches)
                )
            if at:  # the first round warms up
                figures.append((_processor_ns(pid) - before) / commit_count / 1000)
    await store.close()
    return found


def _processor_ns(pid: int) -> int:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=300, help="per round")
    parser.add_argument("--rounds", type=int, default=16)
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
    fenced, bare = min(found["enable"]), min(found["disable"])
    print(
        f"with triggers {fenced:.1f} µs per commit, without {bare:.1f}: {fenced - bare:+.1f} ({fenced / bare - 1:+.1%})"
    )
    print("rounds:", {state: [round(figure, 1) for figure in figures] for state, figures in found.items()})


if __name__ == "__main__":
    main()
