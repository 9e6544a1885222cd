"""Checks of a healed deployment at the end of a run."""

import asyncio
from typing import TYPE_CHECKING

from bearlake.metadata.model import PartitionKey
from bearlake.streams.fetched import FetchRange
from bearlake.streams.service import Streams
from bearlake.wal import reader as wal_reader
from simulator.network import run_in
from simulator.nodes import Node
from simulator.truth import Violation

if TYPE_CHECKING:
    from simulator.deployment import Deployment

ARRIVAL_DEADLINES = 3
"""Number of call deadlines after which all calls in flight have arrived, once the network is healthy again."""


async def check_end(deployment: "Deployment") -> None:
    """Check that every server, and a newly started one, knows all streams and serves every partition from its start to its end."""
    deployment.start_node("late")
    await asyncio.sleep(ARRIVAL_DEADLINES * deployment.settings.network.deadline_ms / 1000)
    for _ in range(1_000):
        if all(_is_quiet(deployment, node) for node in [*deployment.nodes.values(), *deployment.zombies]):
            break
        await asyncio.sleep(0.1)
    else:
        raise Violation("a healed server does not follow the log")
    for token in deployment.truth.commits:
        wal_reader.verify(deployment.truth.objects[token])
    for node in deployment.nodes.values():
        node.check_left_behind()
        streams = node.streams
        assert streams is not None
        known = [view.stream for name in streams.catalog.names() if (view := streams.catalog.peek(name))]
        true = sorted(deployment.truth.active(), key=lambda stream: stream.name)
        deployment.truth.expect(known == true, "every server knows all streams", known=known, true=true)
        for stream in deployment.truth.active():
            for key in deployment.keys(stream):
                await run_in(node.process, deployment.loop, _read_all(deployment, streams, key))


def _is_quiet(deployment: "Deployment", node: Node) -> bool:
    """Return whether a server has nothing to write and has followed the log to its end; a zombie may be gone instead."""
    streams = node.streams
    if node in deployment.zombies and (node.is_gone or streams is None):
        return True
    if node.is_gone or streams is None or streams._writer.pending_bytes:
        return False
    return streams._tail.position == deployment.truth.position and not streams._follower._changed


async def _read_all(deployment: "Deployment", streams: Streams, key: PartitionKey) -> None:
    partition = deployment.truth.partition(key)
    offset = partition.start
    deployment.transaction_history.starts_over(key)
    for _ in range(10_000):
        number = deployment.client_history.begins_read(key, offset, "at the end")
        (fetched,) = await streams.fetch([FetchRange(key, offset, 2_000)], bytes_min=0, bytes_max=2_000, wait_ms=0)
        deployment.client_history.ends_read(number, fetched)
        if fetched.error is not None:
            raise Violation(f"I4: offset {offset} of {key} is not readable at the end: {fetched.error!r}")
        if fetched.end != partition.end or fetched.start != partition.start:
            raise Violation(f"I2: partition {key} is {partition.start}-{partition.end}, returned {fetched}")
        if offset == partition.end:
            deployment.client_history.read_completely(key, partition.start)
            return
        following = deployment.truth.read(key, offset, fetched.views, fetched.end)
        deployment.transaction_history.reads_at_the_end(key, fetched.views)
        if following == offset:
            raise Violation(f"I4: nothing is read at offset {offset} of {key}, which ends at {partition.end}")
        offset = following
