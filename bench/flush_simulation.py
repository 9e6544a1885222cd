"""One server's flushes, simulated with the server's own `FlushPolicy`: objects per second, their size, and the wait of a batch.

Batches of one size arrive evenly. A flush holds an upload slot until its PUT and its commit are done; commits happen in the
order of the flushes, one after the other, as `streams/writer.py` does it. Time is simulated, so that a rate of gigabytes per second
needs no such machine; the server's CPU has no limit here.
"""

import heapq
from collections import deque
from dataclasses import dataclass
from statistics import median

from bearlake.streams.flush_policy import FlushPolicy
from bearlake.streams.writer_settings import WriterSettings

WARMUP_S = 2.0
"""Simulated time before the counts begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flushes:
    """What one server does at one rate. `is_sustained` False: more arrives than its upload slots take; other figures mean nothing."""

    is_sustained: bool
    objects_per_s: float = 0.0
    object_bytes: float = 0.0
    """Mean size."""
    p50_ms: float = 0.0
    """Median time from a batch's arrival to its commit."""


@dataclass
class Waiting:
    """Batches that wait for a flush: their bytes and number, and when the first of them arrived (s)."""

    size: int = 0
    count: int = 0
    since: float = 0.0


class FlushSimulation:
    """A server that gets `bytes_per_s` in batches of `batch_bytes`."""

    def __init__(
        self, settings: WriterSettings, *, bytes_per_s: float, batch_bytes: int, put_ms: float, commit_ms: float
    ) -> None:
        self._settings = settings
        self._policy = FlushPolicy(settings)
        self._pause_s = batch_bytes / bytes_per_s
        self._batch_bytes = batch_bytes
        self._put_s, self._commit_s = put_ms / 1e3, commit_ms / 1e3
        self._open = Waiting()
        self._full: deque[Waiting] = deque()
        self._ends: list[float] = []
        """When the flushes in flight end (s)."""
        self._last_end = 0.0
        self._waiting_bytes = 0
        self._sizes: list[int] = []
        self._waits_ms: list[float] = []

    def run(self, seconds: float) -> Flushes:
        """Simulate `seconds` after WARMUP_S."""
        until, at, number = WARMUP_S + seconds, 0.0, 0
        while at < until:
            timer = self._kick(at)
            arrival, end = number * self._pause_s, self._next_end()
            at = min(arrival, end, timer)
            if at == end:
                heapq.heappop(self._ends)
                self._policy.written(at, self._open.count)
            elif at == arrival:
                number += 1
                self._arrive(at)
            if self._waiting_bytes > self._settings.bytes_max:
                return Flushes(is_sustained=False)
        return Flushes(
            is_sustained=True, objects_per_s=len(self._sizes) / seconds,
            object_bytes=sum(self._sizes) / max(1, len(self._sizes)), p50_ms=median(self._waits_ms or [0.0]),
        )  # fmt: skip

    def _next_end(self) -> float:
        return self._ends[0] if self._ends else float("inf")

    def _arrive(self, now: float) -> None:
        buffer = self._open
        if buffer.size and buffer.size + self._batch_bytes > self._settings.object_bytes_max:
            self._full.append(buffer)
            buffer = self._open = Waiting()
        if not buffer.size:
            buffer.since = now
        buffer.size += self._batch_bytes
        buffer.count += 1
        self._waiting_bytes += self._batch_bytes

    def _kick(self, now: float) -> float:
        """Flush what the policy allows at `now`; returns when to ask again."""
        while len(self._ends) < self._settings.puts_in_flight_max:
            if self._full:
                self._flush(self._full.popleft(), now)
                continue
            if not self._open.size:
                break
            reason, wait_ms = self._policy.decide(
                self._open, now, is_in_flight=bool(self._ends), is_draining=False
            )  # fmt: skip
            if reason is None:
                return now + max(wait_ms, 0.001) / 1e3
            buffer, self._open = self._open, Waiting()
            self._flush(buffer, now)
        return float("inf")

    def _flush(self, buffer: Waiting, now: float) -> None:
        self._policy.flushed(buffer.count)
        self._last_end = max(now + self._put_s, self._last_end) + self._commit_s
        heapq.heappush(self._ends, self._last_end)
        self._waiting_bytes -= buffer.size
        if now >= WARMUP_S:
            self._sizes.append(buffer.size)
            mean_wait_s = self._last_end - buffer.since - (buffer.count - 1) * self._pause_s / 2
            self._waits_ms.append(mean_wait_s * 1e3)
