"""A reader of tables in a simulated deployment: at random times it reads the newest snapshot of a table, as an SQL engine does.

It reads whole rows. All offsets from the partition's start to the table's own end must be present; records that were trimmed before
compaction never become rows.
"""

import asyncio
from typing import TYPE_CHECKING

from bearlake.metadata.model import Stream, partition_index

if TYPE_CHECKING:
    from simulator.deployment import Deployment

PAUSE_S = 0.5


async def query(deployment: "Deployment") -> None:
    """Read random tables repeatedly, until cancelled."""
    randomness = deployment.randomness("queries")
    while True:
        await asyncio.sleep(randomness.expovariate(1.0) * PAUSE_S)
        if active := deployment.truth.active():
            read_rows(deployment, randomness.choice(active))


def read_rows(deployment: "Deployment", stream: Stream) -> None:
    """Read the newest snapshot of the stream's table, if it has one."""
    assert deployment.lake is not None
    table = deployment.lake.tables.tables.get(stream.number)
    if table is None:
        return
    deployment.events["table read"] += 1
    rows = [row for key in table.files for row in deployment.truth.lake.rows_of(key)]
    for key in deployment.keys(stream):
        index = partition_index(key)
        end = table.applied_tasks.ends.get(index, 0)
        number = deployment.client_history.begins_rows(key, min(deployment.truth.partition(key).start, end), end)
        deployment.client_history.ends_rows(number, [row for row in rows if row.partition == index])
