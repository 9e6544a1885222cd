"""Sends the deliveries of one consumer as MESSAGE commands, in order.

    deliver ─> sent at once, until an entry is too much work for this turn of the event loop
          └──> queued: that entry and all after it. One task sends them; a thread decompresses large entries, one after another.

While something is queued, the consumer is not ready, so its dispatcher gives it nothing more and no decision depends on permits that the
queued entries may not use. The task sends nothing while the client does not read, so the entries of one read of the log never wait
uncompressed. A client sees the same commands in the same order as if its connection were slower.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

from bearlake import kernel
from bearlake.errors import BearlakeError
from bearlake.metadata.model import PartitionKey, partition_index, stream_number
from bearlake.protocols.pulsar import commands, entries, framing, message_ids
from bearlake.protocols.pulsar.entries import ReadEntry
from bearlake.protocols.pulsar.opening import Opener
from bearlake.protocols.pulsar.proto.commands_pb2 import BaseCommand, CommandMessage
from bearlake.protocols.pulsar.throttling import Throttling
from bearlake.protocols.pulsar.topics import Topic
from bearlake.streams.subscriptions import Attachment
from bearlake.streams.subscriptions.model import Delivery, EntryAck
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)

_MESSAGE = commands.NUMBERS["message"]
_JOINED_BYTES = 64 * 1024
"""Messages are joined up to this size (bytes). Larger buffers cost more, because the allocator returns them to the operating system."""


class Outlet(Protocol):
    """The connection of the consumer."""

    throttling: Throttling

    @property
    def is_write_paused(self) -> bool:
        """Whether the client does not read what was sent."""

    def send(self, frame: bytes) -> None:
        """Send a frame."""

    def start(self, work: Coroutine[None, None, None], *, is_cancelled_on_close: bool = True) -> "asyncio.Task[None]":
        """Run a task. An error that it raises is a bug, and closes the connection."""


class Receiver(Protocol):
    """The consumer."""

    id: int
    topic: Topic
    partition: PartitionKey
    attachment: Attachment | None

    @property
    def connection(self) -> Outlet:
        """Its connection."""


class _Queued(NamedTuple):
    """Deliveries that wait, and the consumer's epoch when they were delivered."""

    deliveries: Sequence[Delivery]
    epoch: int | None


class Delivering:
    """What one consumer is sent. Use it from the event loop's thread only."""

    def __init__(self, receiver: Receiver, opener: Opener, message_bytes_max: int, epoch: int | None) -> None:
        """`message_bytes_max`: Pulsar's `maxMessageSize`; `epoch`: the consumer's."""
        self.epoch = epoch
        """Sent with the messages of later deliveries."""
        self._receiver = receiver
        self._opener = opener
        self._entry_bytes_max = framing.entry_bytes_max(message_bytes_max)
        self._queue: deque[_Queued | bytes] = deque()
        self._task: asyncio.Task[None] | None = None
        self._may_go_on = asyncio.Event()

    @property
    def is_busy(self) -> bool:
        """Whether something is queued."""
        return self._task is not None

    def deliver(self, deliveries: Sequence[Delivery]) -> int:
        """Send the deliveries; returns their number of messages, for those that are queued the expected number."""
        count = at = 0
        if self._task is None:
            throttling = self._receiver.connection.throttling
            count, at = throttling.run(lambda: self._send_at_once(deliveries, self.epoch))
        if at < len(deliveries):
            rest = deliveries[at:]
            self._put(_Queued(rest, self.epoch))
            count += sum(delivery.open_count for delivery in rest)
        self._receiver.connection.throttling.delivered(deliveries)
        return count

    def send(self, frame: bytes) -> None:
        """Send a command after what is queued."""
        if self._task is None:
            self._receiver.connection.send(frame)
        else:
            self._put(frame)

    def go_on(self) -> None:
        """The client reads again."""
        self._may_go_on.set()

    def stop(self) -> None:
        """Discard what is queued."""
        self._queue.clear()
        if self._task is not None:
            self._task.cancel()

    # -- at once -------------------------------------------------------------------------------------------------

    def _send_at_once(self, deliveries: Sequence[Delivery], epoch: int | None) -> tuple[int, int]:
        """Send deliveries until one is too much work for this turn; returns the number of messages sent, and the index of that delivery."""
        receiver = self._receiver
        partition = receiver.partition
        index = partition_index(partition) if receiver.topic.is_partitioned else -1
        names = (receiver.id, stream_number(partition), index, epoch)
        at = count = 0
        while at < len(deliveries):
            frames, message_count, end = kernel.encode_messages(
                deliveries, at, *names, self._entry_bytes_max, _JOINED_BYTES
            )
            if end > at:
                receiver.connection.send(frames)
                at, count = end, count + message_count
                continue
            used = self._send_one_at_once(deliveries[at], epoch)
            if used is None:
                break
            at, count = at + 1, count + used
        return count, at

    def _send_one_at_once(self, delivery: Delivery, epoch: int | None) -> int | None:
        """Send an entry that the kernel does not encode; returns its number of messages, None if that is too much work."""
        try:
            entry = self._opener.at_once(delivery.batch, self._read(delivery))
        except BearlakeError as error:
            return self._skip(delivery, error)
        return None if entry is None else self._send_entry(delivery, entry, epoch)

    # -- queued --------------------------------------------------------------------------------------------------

    def _put(self, item: _Queued | bytes) -> None:
        self._queue.append(item)
        if self._task is None:
            self._task = self._receiver.connection.start(self._send_queued(), is_cancelled_on_close=False)

    async def _send_queued(self) -> None:
        """Send what is queued; `stop` cancels this task when the consumer is closed or its connection is lost."""
        try:
            while self._queue:
                item = self._queue.popleft()
                if isinstance(item, bytes):
                    self._receiver.connection.send(item)
                else:
                    await self._send_later(item)
        finally:
            self._task = None
        if (attachment := self._receiver.attachment) is not None:
            attachment.resume()

    async def _send_later(self, item: _Queued) -> None:
        deliveries, epoch = item
        at = 0
        while at < len(deliveries):
            await self._writable()
            delivery = deliveries[at]
            try:
                entry = await self._opener.opened(delivery.batch, self._read(delivery))
            except BearlakeError as error:
                used = self._skip(delivery, error)
            else:
                used = self._send_entry(delivery, entry, epoch)
            self._give_back(delivery.open_count - used)
            at += 1
            rest = deliveries[at:]
            used, count = self._send_at_once(rest, epoch)
            self._give_back(sum(delivery.open_count for delivery in rest[:count]) - used)
            at += count

    async def _writable(self) -> None:
        """Return when the client reads; a client that stalls loses its connection, and with it this task."""
        while self._receiver.connection.is_write_paused:
            self._may_go_on.clear()
            await self._may_go_on.wait()

    def _give_back(self, permits: int) -> None:
        if permits and (attachment := self._receiver.attachment) is not None:
            attachment.give_back(permits)

    # -- entries -------------------------------------------------------------------------------------------------

    def _read(self, delivery: Delivery) -> "partial[ReadEntry]":
        return partial(entries.from_records, delivery.batch, delivery.base_offset, self._entry_bytes_max)

    def _send_entry(self, delivery: Delivery, entry: ReadEntry, epoch: int | None) -> int:
        """Send an entry; returns its number of messages that are not acknowledged."""
        if not entry.message_count:
            return self._skip(delivery, None)
        command = self._message(delivery, entry.is_batch, epoch)
        self._receiver.connection.send(framing.message_frame(command, entry.headers_and_payload))
        return entry.message_count - (delivery.record_count - delivery.open_count)

    def _message(self, delivery: Delivery, is_batch: bool, epoch: int | None) -> BaseCommand:
        receiver = self._receiver
        body = CommandMessage(
            consumer_id=receiver.id,
            message_id=message_ids.entry_id(
                receiver.partition, delivery.base_offset, is_partitioned=receiver.topic.is_partitioned
            ),
            redelivery_count=delivery.redelivery_count or None,
            consumer_epoch=epoch,
        )
        if delivery.acknowledged and is_batch:
            body.ack_set.extend(message_ids.words(delivery.record_count, delivery.acknowledged, delivery.base_offset))
        return BaseCommand(type=_MESSAGE, message=body)

    def _skip(self, delivery: Delivery, error: BearlakeError | None) -> int:
        """Skip an entry without messages or an unreadable entry, so that it does not block later entries; returns 0 messages."""
        if error is not None:
            metrics.PULSAR_UNREADABLE_ENTRIES.inc()
            log.error(
                "cannot read an entry",
                extra={"partition": self._receiver.partition, "offset": delivery.base_offset, "error": error},
            )
        asyncio.get_running_loop().call_soon(self._acknowledge_skipped, delivery.base_offset)
        return 0

    def _acknowledge_skipped(self, base_offset: int) -> None:
        if (attachment := self._receiver.attachment) is not None:
            with suppress(BearlakeError):  # the entry is delivered again, and skipped again
                attachment.acknowledge([EntryAck(base_offset)])
