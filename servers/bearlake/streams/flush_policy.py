"""When the write path flushes: *natural batching*.

The writer flushes while an upload slot is free (`puts_in_flight_max`) and one of these holds: nothing is in flight and `flush_when_idle`
is set; `flush_bytes` or `object_batch_count_max` batches are waiting; the oldest waiting batch is `linger_ms` old; a buffer is full.

After a flush of many batches, the next idle flush waits up to `gather_ms` until the clients that were just answered have sent again
(decision 14).
"""

from typing import Protocol

from bearlake.streams.writer_settings import WriterSettings


class Waiting(Protocol):
    """The batches that wait for a flush: `streams.buffer.OpenBuffer`."""

    @property
    def size(self) -> int:
        """Bytes of the batches."""

    @property
    def count(self) -> int:
        """Batches."""

    @property
    def since(self) -> float:
        """Loop time (s) of the first batch."""


class FlushPolicy:
    """Decides about the open buffer. Full buffers need no decision: the writer flushes them when a slot is free."""

    def __init__(self, settings: WriterSettings) -> None:
        self._settings = settings
        self._last_written_at = 0.0
        self._last_count = 0  # batches of the newest flush
        self._gather_count = 0  # waiting batches at which every client that the last flush answered has sent again

    def decide(self, buffer: Waiting, now: float, *, is_in_flight: bool, is_draining: bool) -> tuple[str | None, float]:
        """Return the reason to flush a buffer with batches, for which a slot is free; or None, and the time (ms) until the next decision.

        `now`: the loop's time in seconds. The reason is the label of `bearlake_append_flushes_total`.
        """
        settings = self._settings
        age_ms = (now - buffer.since) * 1000
        gathered_ms = (now - self._last_written_at) * 1000
        is_idle = settings.flush_when_idle and not is_in_flight
        if is_idle and (gathered_ms >= settings.gather_ms or buffer.count >= self._gather_count):
            return "idle", 0
        if buffer.count >= settings.object_batch_count_max:
            return "full", 0
        if buffer.size >= settings.flush_bytes:
            return "bytes", 0
        if age_ms >= settings.linger_ms:
            return "linger", 0
        if is_draining:
            return "drain", 0
        wait_ms = settings.linger_ms - age_ms
        return None, min(wait_ms, settings.gather_ms - gathered_ms) if is_idle else wait_ms

    def flushed(self, batch_count: int) -> None:
        """A flush of `batch_count` batches began."""
        self._last_count = batch_count

    def written(self, now: float, waiting_count: int) -> None:
        """A write ended at `now`, successful or not, while `waiting_count` batches wait in the open buffer."""
        self._last_written_at = now
        is_gathering = self._last_count >= self._settings.gather_batches_min
        self._gather_count = waiting_count + self._last_count if is_gathering else 0
