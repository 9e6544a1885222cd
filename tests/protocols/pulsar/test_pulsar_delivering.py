"""What a consumer is sent while a thread decompresses entries: the same commands in the same order as over a slower connection."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from bearlake.metadata.model import PartitionKey
from bearlake.protocols.pulsar import commands, framing
from bearlake.protocols.pulsar.delivering import Delivering
from bearlake.protocols.pulsar.entries import MESSAGE_BYTES_MAX
from bearlake.protocols.pulsar.opening import Opener
from bearlake.protocols.pulsar.proto.commands_pb2 import CommandActiveConsumerChange
from bearlake.records.batch import Compression
from bearlake.records.codec import Record, encode
from bearlake.streams.checking import Checks, CheckSettings
from bearlake.streams.subscriptions.model import Delivery
from fixtures.waiting import until

MIB = 1024 * 1024


class Outlet:
    """A connection that keeps what it is sent."""

    def __init__(self) -> None:
        self.is_write_paused = False
        self.throttling: Any = SimpleNamespace(delivered=lambda deliveries: None, run=lambda work: work())
        self.frames: list[bytes] = []

    def send(self, frame: bytes) -> None:
        self.frames.append(frame)

    def start(self, work: Coroutine[None, None, None], *, is_cancelled_on_close: bool = True) -> "asyncio.Task[None]":
        assert not is_cancelled_on_close, "the consumer cancels the task when it ends"
        return asyncio.get_running_loop().create_task(work)

    @property
    def sent(self) -> list[tuple[str, int, int]]:
        """Name, entry and epoch of each command (-1: none)."""
        found, rest = [], memoryview(b"".join(self.frames))
        while rest:
            size = int.from_bytes(rest[:4], "big")
            command, _ = framing.read_frame(rest[4 : 4 + size])
            name, rest = commands.NAMES[command.type], rest[4 + size :]
            body = command.message
            epoch = body.consumer_epoch if name == "message" and body.HasField("consumer_epoch") else -1
            found.append((name, body.message_id.entry_id if name == "message" else -1, epoch))
        return found


class Receiver:
    """A consumer."""

    def __init__(self, outlet: Outlet) -> None:
        self.id = 1
        self.topic: Any = SimpleNamespace(is_partitioned=False)
        self.partition = PartitionKey(7 << 20)
        self.connection = outlet
        self.resumed_count = 0
        self.returned = 0
        self.attachment: Any = SimpleNamespace(resume=self._resume, give_back=self._give_back)

    def _resume(self) -> None:
        self.resumed_count += 1

    def _give_back(self, permits: int) -> None:
        self.returned += permits


@pytest.fixture
async def made() -> AsyncIterator[tuple[Delivering, Outlet, Receiver]]:
    checks, outlet = Checks(CheckSettings()), Outlet()
    receiver = Receiver(outlet)
    yield Delivering(receiver, Opener(checks, 64 * MIB), MESSAGE_BYTES_MAX, None), outlet, receiver
    checks.close()


def entry(base: int, size: int = 10) -> Delivery:
    codec = Compression.ZSTD if size > 10 else Compression.NONE
    return Delivery(base, 1, memoryview(encode([Record(value=bytes(size), timestamp=1)], codec=codec)), 0, ())


async def test_small_entries_are_sent_at_once(made: tuple[Delivering, Outlet, Receiver]) -> None:
    delivering, outlet, receiver = made

    count = delivering.deliver([entry(0), entry(1, 1000), entry(2)])

    assert count == 3
    assert [base for _, base, _ in outlet.sent] == [0, 1, 2]
    assert not delivering.is_busy
    assert not receiver.resumed_count


async def test_later_entries_and_commands_wait_for_a_large_entry(made: tuple[Delivering, Outlet, Receiver]) -> None:
    """A redelivery that the client asks for meanwhile concerns the queued entries: they keep the epoch before it."""
    delivering, outlet, receiver = made

    count = delivering.deliver([entry(0), entry(1, MIB), entry(2)])
    at_once = outlet.sent
    delivering.epoch = 5
    delivering.send(commands.frame("active_consumer_change", CommandActiveConsumerChange(consumer_id=1)))
    was_busy = delivering.is_busy
    await until(lambda: not delivering.is_busy)
    delivering.deliver([entry(3)])

    assert count == 3
    assert was_busy
    assert at_once == [("message", 0, -1)]
    assert outlet.sent == [
        ("message", 0, -1),
        ("message", 1, -1),
        ("message", 2, -1),
        ("active_consumer_change", -1, -1),
        ("message", 3, 5),
    ]
    assert (receiver.resumed_count, receiver.returned) == (1, 0)


async def test_permits_of_queued_entries_that_cannot_be_read_are_given_back(
    made: tuple[Delivering, Outlet, Receiver],
) -> None:
    delivering, outlet, receiver = made
    damaged = entry(1, MIB)._replace(batch=entry(1, MIB).batch[:-4])

    count = delivering.deliver([entry(0, MIB), damaged, entry(2)])
    receiver.attachment.acknowledge = lambda acks: None
    await until(lambda: not delivering.is_busy)

    assert count == 3
    assert receiver.returned == 1
    assert [base for _, base, _ in outlet.sent] == [0, 2]


async def test_nothing_is_sent_to_a_client_that_does_not_read(made: tuple[Delivering, Outlet, Receiver]) -> None:
    delivering, outlet, _ = made
    outlet.is_write_paused = True

    delivering.deliver([entry(0, MIB), entry(1, MIB)])
    for _ in range(10):
        await asyncio.sleep(0)
    before = outlet.sent
    outlet.is_write_paused = False
    delivering.go_on()
    await until(lambda: not delivering.is_busy)

    assert not before
    assert [base for _, base, _ in outlet.sent] == [0, 1]


async def test_an_end_discards_what_is_queued(made: tuple[Delivering, Outlet, Receiver]) -> None:
    delivering, outlet, receiver = made
    delivering.deliver([entry(0, MIB), entry(1)])

    delivering.stop()
    for _ in range(10):
        await asyncio.sleep(0)

    assert not outlet.frames
    assert not receiver.resumed_count
