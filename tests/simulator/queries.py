"""A reader of tables in a simulated deployment: at random times it reads the newest snapshot of a table, as an SQL engine does.

It reads whole rows. All offsets from the partition's start to the table's own end must be present; records that were trimmed before
compaction never become rows.
"""

import asyncio
from typing import TYPE_CHECKING

from bearlake.metadata.model import Stream, partition_index

if TYPE_CHECKING:
    from simulator.world import World

PAUSE_S = 0.5


async def query(world: "World") -> None:
    """Read random tables repeatedly, until cancelled."""
    randomness = world.randomness("queries")
    while True:
        await asyncio.sleep(randomness.expovariate(1.0) * PAUSE_S)
        if active := world.truth.active():
            read_rows(world, randomness.choice(active))


def read_rows(world: "World", stream: Stream) -> None:
    """Read the newest snapshot of the stream's table, if it has one."""
    assert world.lake is not None
    table = world.lake.tables.tables.get(stream.number)
    if table is None:
        return
    world.events["table read"] += 1
    rows = [row for key in table.files for row in world.truth.lake.rows_of(key)]
    for key in world.keys(stream):
        index = partition_index(key)
        end = table.marks.ends.get(index, 0)
        number = world.chronicle.begins_rows(key, min(world.truth.partition(key).start, end), end)
        world.chronicle.ends_rows(number, [row for row in rows if row.partition == index])
