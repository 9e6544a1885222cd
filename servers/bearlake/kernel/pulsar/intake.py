"""Take Pulsar SENDs from a receive buffer into the write buffer: the hot path of producers, without an object per SEND."""

from bearlake.kernel.buffers import Buffer, view_of
from bearlake.kernel.log import BATCH_NAMED, Append
from bearlake.kernel.log.buffer import WriteBuffer
from bearlake.kernel.pulsar import SendBinding, SendIds
from bearlake.kernel.pulsar.send_results import SendResults
from bearlake.kernel.pulsar.sends import CommonSend, encode_common, read_common_send

_SEQUENCE_MAX = 2**63 - 1


def take_sends(
    buffer: WriteBuffer,
    call: SendResults,
    memory: Buffer,
    start: int,
    end: int,
    binding: SendBinding,
    count_max: int,
    payload_bytes_max: int,
    message_bytes_max: int,
    seen: int,
    /,
) -> tuple[int, bool, int]:
    """Take consecutive SENDs of one producer from `start` of `memory` on, as one call.

    Each becomes the record batch that `parse_sends` makes of it, with the names that `binding` says. At most `count_max` SENDs are taken,
    and none after the first that `parse_sends` would not take, is of another producer, or has a batch that `binding` does not admit; the
    caller handles that one on its own. `buffer` keeps the batches; nothing of `memory` is kept.

    `call` has no SENDs yet. `seen` is as in `WriteBuffer.add`. Returns the end of the last SEND that was taken; whether the next one needs
    another buffer, because the room of this one does not suffice for its payload or its batch; and the producer's newest sequence.

    Raises:
        ValueError: [start, end) is not inside `memory`; `buffer` is joined; `call` has SENDs.
    """
    taken = _Taken(buffer, binding)
    view = view_of(memory)
    buffer.check_open()
    call.check_unused()
    if not 0 <= start <= end <= len(view):
        raise ValueError(f"[{start}, {end}) is not inside a buffer of {len(view)} bytes")
    while len(taken.appends) < count_max:
        send = read_common_send(view[:end], start, payload_bytes_max, message_bytes_max, binding.producer_id)
        if send is None or not taken.add(send):
            break
        start = send.end
    if taken.appends:
        call.set_sends(taken.ids)
        buffer.keep(None, len(taken.appends))
        for place, item in enumerate(taken.appends):
            buffer.push(call, place, item, seen)
    return start, taken.is_full, taken.newest


class _Taken:
    """The SENDs that are taken, which all go into one buffer."""

    def __init__(self, buffer: WriteBuffer, binding: SendBinding) -> None:
        if len(binding.stream_id) != 16:
            raise ValueError("a stream id has 16 bytes")
        self._buffer = buffer
        self._binding = binding
        self._size = 0
        self.ids: list[SendIds] = []
        self.appends: list[Append] = []
        self.is_full = False
        """Whether the next SEND needs another buffer."""
        self.newest = binding.newest_sequence

    def add(self, send: CommonSend) -> bool:
        """Take a SEND; returns whether it was taken."""
        binding = self._binding
        if (not binding.is_deduplicated and self.newest == _SEQUENCE_MAX) or not self._fits(len(send.payload)):
            return False
        encoded = encode_common(send)
        if encoded is None:
            return False
        batch, record_count, base_timestamp, max_timestamp = encoded
        if (
            len(batch) > binding.batch_bytes_max
            or base_timestamp < binding.earliest_ms
            or max_timestamp > binding.latest_ms
            or not self._fits(len(batch))
        ):
            return False
        names = self._names(max(send.sequence_id, send.highest_id or 0))
        head = (binding.partition, binding.stream_id, memoryview(batch), None, record_count, max_timestamp)
        self._size += len(batch)
        self.ids.append((send.sequence_id, send.highest_id))
        self.appends.append(Append(*head, *names))
        return True

    def _fits(self, size: int) -> bool:
        buffer = self._buffer
        size_left = buffer.size_max - buffer.size - self._size
        count_left = buffer.count_max - buffer.count - len(self.appends)
        if size <= size_left and count_left > 0:
            return True
        self.is_full = size <= buffer.size_max
        return False

    def _names(self, sequence: int) -> tuple[int, int, int, int, int, int]:
        """The fields of an `Append` from `producer_id` on."""
        binding, before = self._binding, self.newest
        if binding.stored_id < 0:
            return -1, -1, -1, 0, -1, -1
        if not binding.is_deduplicated:
            sequence = before + 1
        self.newest = max(sequence, before)
        return binding.stored_id, binding.epoch, sequence, BATCH_NAMED, -1, before
