"""A consumer group (KIP-848) of many members: CPU time per heartbeat and per join, and the time until all members are stable.

    python bench/micro/consumer_groups.py --members 1000 --partitions 1000

Members join one after the other, then beat in turn, every 5 s of virtual time as Kafka's clients do, and at once after they gave partitions
up. Saves are real encodings of the group, and end at once: what a store takes comes on top, once per batch of concurrent requests.
"""

import argparse
import asyncio
import time

from bearlake.metadata.model import PARTITION_BITS, PartitionKey
from bearlake.streams.groups.consumer.machine import ConsumerMachine
from bearlake.streams.groups.consumer.model import ConsumerGroup, Heartbeat, HeartbeatAnswer
from bearlake.streams.groups.consumer.settings import ConsumerGroupSettings
from bearlake.streams.groups.model import GroupState


class _Stream:
    """One stream."""

    def __init__(self, partition_count: int) -> None:
        self.partition_count = partition_count
        self.first_key = 1 << PARTITION_BITS


class _Topics:
    """The only stream, `t`."""

    version = 1

    def __init__(self, partition_count: int) -> None:
        self._stream = _Stream(partition_count)

    def peek(self, name: str) -> _Stream | None:
        """Return the stream."""
        return self._stream if name == "t" else None

    async def catch_up(self) -> None:
        """Return at once."""


class _Member:
    """A client as it sees itself."""

    def __init__(self, member_id: str) -> None:
        self.id = member_id
        self.epoch = 0
        self.has: tuple[PartitionKey, ...] = ()
        self.said: tuple[PartitionKey, ...] | None = None


class _Bench:
    """One group, whose saves are counted and end with the current turn of the event loop."""

    def __init__(self, partition_count: int, interval_ms: int) -> None:
        self.save_count = 0
        self.save_s = 0.0
        self.snapshot_bytes = 0
        self.machine = ConsumerMachine(
            ConsumerGroup(name="g"),
            topics=_Topics(partition_count),
            settings=lambda: ConsumerGroupSettings(assignment_interval_ms=interval_ms, session_timeout_ms=3_600_000),
            on_save=self._save,
        )

    def _save(self, ticket: int) -> None:
        begun = time.process_time()
        self.snapshot_bytes = len(self.machine.encode()[1])
        self.save_count += 1
        self.save_s += time.process_time() - begun
        asyncio.get_running_loop().call_soon(self.machine.saved, ticket)

    async def beat(self, member: _Member) -> None:
        """Send a heartbeat as Kafka's clients do: with the member's partitions if they have changed."""
        joins = member.epoch == 0
        asked = Heartbeat(
            member_id=member.id,
            epoch=member.epoch,
            rebalance_timeout_ms=300_000 if joins else None,
            topics=("t",) if joins else None,
            owned=() if joins else (None if member.said == member.has else member.has),
            client_id="bench",
            client_host="/127.0.0.1",
        )
        answer: HeartbeatAnswer = await self.machine.beat(asked)
        member.said = member.has
        member.epoch = answer.epoch
        if answer.assigned is not None:
            member.has = tuple(answer.assigned)

    @property
    def is_stable(self) -> bool:
        """Whether every member has what it should have."""
        return self.machine.group.state is GroupState.STABLE


async def _measure(member_count: int, partition_count: int, interval_ms: int) -> None:
    bench = _Bench(partition_count, interval_ms)
    members = [_Member(f"{number:08x}-member") for number in range(member_count)]
    begun = time.process_time()
    await asyncio.gather(*(bench.beat(member) for member in members))
    joined_s = time.process_time() - begun
    print(f"join: {joined_s * 1e6 / member_count:.0f} us each, {joined_s:.2f} s, {bench.save_count} saves")

    rounds, saves, begun = 0, bench.save_count, time.process_time()
    while not bench.is_stable:
        await asyncio.sleep(interval_ms / 1000)
        await asyncio.gather(*(bench.beat(member) for member in members))
        given_up = [member for member in members if member.said != member.has]
        await asyncio.gather(*(bench.beat(member) for member in given_up))
        rounds += 1
    spent_s = time.process_time() - begun
    print(
        f"stable after {rounds} rounds of heartbeats: {spent_s:.2f} s of CPU time, {bench.save_count - saves} saves,"
        f" {rounds * 5} s with clients that beat every 5 s"
    )

    begun = time.process_time()
    for member in members:
        await bench.beat(member)
    print(f"heartbeat without news: {(time.process_time() - begun) * 1e6 / member_count:.1f} us")
    print(
        f"save: {bench.save_s * 1e3 / bench.save_count:.2f} ms on average, snapshot {bench.snapshot_bytes / 1024:.0f} KiB"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--interval-ms", type=int, default=1_000, help="between two assignments")
    options = parser.parse_args()
    asyncio.run(_measure(options.members, options.partitions, options.interval_ms))


if __name__ == "__main__":
    main()
