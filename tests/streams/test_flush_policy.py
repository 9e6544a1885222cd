"""When the open buffer is flushed (`streams/flush_policy.py`): the reason, or the time until the next decision."""

from dataclasses import dataclass

from bearlake.streams.flush_policy import FlushPolicy
from bearlake.streams.writer_settings import WriterSettings

SETTINGS = WriterSettings(flush_bytes=100, linger_ms=5, gather_ms=0.5, gather_batches_min=8)


@dataclass
class Batches:
    size: int
    count: int
    since: float


def buffer(size: int = 10, count: int = 1, since: float = 0.0) -> Batches:
    return Batches(size, count, since)


def decided(
    waiting: Batches, now: float, *, settings: WriterSettings = SETTINGS, is_in_flight: bool = True
) -> tuple[str | None, float]:
    return FlushPolicy(settings).decide(waiting, now, is_in_flight=is_in_flight, is_draining=False)


def test_a_batch_is_flushed_at_once_when_nothing_is_in_flight() -> None:
    assert decided(buffer(), 1.0, is_in_flight=False) == ("idle", 0)


def test_enough_bytes_are_flushed_before_the_linger_has_passed() -> None:
    assert decided(buffer(size=100), 0.001) == ("bytes", 0)
    assert decided(buffer(size=99), 0.001) == (None, 4.0)


def test_as_many_batches_as_an_object_may_have_are_flushed_before_the_linger_has_passed() -> None:
    few = WriterSettings(flush_bytes=100, linger_ms=5, object_batch_count_max=9)

    assert decided(buffer(count=9), 0.001, settings=few) == ("full", 0)
    assert decided(buffer(count=8), 0.001, settings=few) == (None, 4.0)


def test_the_oldest_batch_waits_no_longer_than_the_linger() -> None:
    assert decided(buffer(), 0.005) == ("linger", 0)


def test_batches_wait_for_the_linger_if_idle_flushes_are_off() -> None:
    off = WriterSettings(flush_bytes=100, linger_ms=5, flush_when_idle=False)

    assert decided(buffer(), 0.0, settings=off, is_in_flight=False) == (None, 5.0)


def test_a_drain_flushes_the_open_buffer() -> None:
    assert FlushPolicy(SETTINGS).decide(buffer(), 0.0, is_in_flight=True, is_draining=True) == ("drain", 0)


def test_after_a_large_flush_an_idle_flush_waits_until_its_clients_have_sent_again() -> None:
    policy = FlushPolicy(SETTINGS)
    policy.flushed(8)
    policy.written(1.0, 2)

    too_few, wait_ms = policy.decide(buffer(count=9, since=1.0), 1.0, is_in_flight=False, is_draining=False)
    enough = policy.decide(buffer(count=10, since=1.0), 1.0, is_in_flight=False, is_draining=False)
    later = policy.decide(buffer(count=9, since=1.0), 1.001, is_in_flight=False, is_draining=False)
    assert (too_few, wait_ms) == (None, 0.5)
    assert enough == later == ("idle", 0)


def test_after_a_small_flush_an_idle_flush_does_not_wait() -> None:
    policy = FlushPolicy(SETTINGS)
    policy.flushed(7)
    policy.written(1.0, 2)

    assert policy.decide(buffer(count=1, since=1.0), 1.0, is_in_flight=False, is_draining=False) == ("idle", 0)
