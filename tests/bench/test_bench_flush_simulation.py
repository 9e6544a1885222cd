"""The simulation of a server's flushes, by cases whose result follows from the settings."""

import pytest
from bench.flush_simulation import Flushes, FlushSimulation

from bearlake.streams.writer_settings import WriterSettings

MIB = 1 << 20
STORE = WriterSettings(linger_ms=250, flush_when_idle=False)


def _flushes(
    bytes_per_s: float, *, settings: WriterSettings = STORE, put_ms: float = 80, commit_ms: float = 0
) -> Flushes:
    return FlushSimulation(
        settings, bytes_per_s=bytes_per_s, batch_bytes=MIB // 16, put_ms=put_ms, commit_ms=commit_ms
    ).run(10)  # fmt: skip


def test_little_load_is_flushed_when_the_linger_is_over() -> None:
    flushes = _flushes(2 * MIB)

    assert flushes.objects_per_s == pytest.approx(4, rel=0.15)  # the linger begins with a batch
    assert flushes.object_bytes == pytest.approx(2 * MIB / 4, rel=0.15)


def test_more_load_is_flushed_by_bytes() -> None:
    flushes = _flushes(100 * MIB)

    assert flushes.object_bytes == STORE.flush_bytes
    assert flushes.objects_per_s == pytest.approx(25, rel=0.1)


def test_objects_grow_to_their_maximum_before_the_upload_slots_are_too_few() -> None:
    most = STORE.object_bytes_max * STORE.puts_in_flight_max / 0.1  # bytes per second, with PUTs of 100 ms

    nearly = _flushes(most * 0.95, put_ms=100)
    beyond = _flushes(most * 1.1, put_ms=100)

    assert nearly.is_sustained
    assert nearly.object_bytes > 0.9 * STORE.object_bytes_max
    assert not beyond.is_sustained


def test_commits_wait_for_one_another() -> None:
    flushes = _flushes(100 * MIB, put_ms=1, commit_ms=50)  # at most 20 commits per second

    assert flushes.objects_per_s == pytest.approx(20, rel=0.1)
    assert flushes.object_bytes > STORE.flush_bytes


def test_an_idle_server_flushes_at_once_if_the_settings_say_so() -> None:
    flushes = _flushes(MIB, settings=WriterSettings(), put_ms=1)  # 16 batches per second

    assert flushes.objects_per_s == pytest.approx(16, rel=0.1)
    assert flushes.p50_ms == pytest.approx(1, rel=0.1)
