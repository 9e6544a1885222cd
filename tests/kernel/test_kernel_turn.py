# ruff: noqa: SLF001 - the state of a connection that no method shows
"""A turn of a connection whose Produce requests are bound, native and in Python."""

import gc
import sys
import weakref
from random import Random
from types import ModuleType
from typing import Any

import pytest

from bearlake.kernel import fallback
from bearlake.serving.receiving import ROOM_BYTES_MIN
from bearlake.serving.slabs import SIZES, SMALL_BYTES, SlabPool, SlabSettings
from fixtures.kernel_turns import Story, agreed
from kernel.test_kernel_binding import TRANSACTIONAL, rules
from kernel.test_kernel_intake import framed, lead_of
from kernel.test_kernel_produce import BATCH, IDEMPOTENT, request

ONE = framed(3, 1, request(3, [("t", [BATCH])]))
FRAMES = [
    ONE,
    framed(3, 2, request(3, [("t", [BATCH, IDEMPOTENT])])),
    framed(3, 3, request(3, [("t", [IDEMPOTENT])])),
    ONE,
    framed(3, 4, request(3, [("t", [BATCH] * 5)])),  # more partitions than there are
    framed(3, 5, request(3, [("u", [BATCH])])),
    framed(3, 6, request(3, [("t", [BATCH])]), client=b"you"),
    framed(3, 7, bytes(70_000), key=1),
    framed(3, 8, request(3, [("t", [BATCH])]), key=3),
    ONE * 3,
    framed(3, 9, request(3, [("t", [BATCH, TRANSACTIONAL])], "tx")),
]
BINDINGS = [
    (3, lead_of(3), 10_000, "t", rules(), None),
    (3, lead_of(3), 10_000, "t", rules(before=-500, after=500), None),
    (3, lead_of(3), 10_000, "u", rules(), None),
    (3, lead_of(3), 100, "t", rules(), None),
    (3, lead_of(3), 10_000, "t", rules(), ("tx", 7, 2)),
]


@pytest.mark.parametrize("seed", range(60))
def test_both_kernels_tell_the_same_story(native: ModuleType, seed: int) -> None:
    random = Random(seed)

    taken = sum(
        agreed(native, fallback, _script(random), FRAMES if at % 2 else FRAMES[:4], BINDINGS).taken for at in range(6)
    )

    assert taken > 20


def test_requests_of_a_bound_transaction_are_taken(native: ModuleType) -> None:
    frame = framed(3, 9, request(3, [("t", [TRANSACTIONAL])], "tx"))
    bind_and_read = bytes([6, 0, 0, 0, 0, 0])

    assert agreed(native, fallback, bind_and_read * 3, [frame], BINDINGS[-1:]).taken == 3
    assert agreed(native, fallback, bind_and_read * 3, [frame], BINDINGS[:1]).taken == 0


def _script(random: Random) -> bytes:
    """Mostly reads of bound requests."""
    script = bytearray()
    while len(script) < 1500:
        script += bytes([6, random.choice([0, 0, 0, 1, random.randrange(256)])])
        script += b"".join(
            bytes([random.choice([0, 0, 0, 0, 4, 5])]) + random.randbytes(random.randrange(5)) for _ in range(6)
        )
        if random.random() < 0.5:
            script += bytes([7, random.randrange(256)])
        if random.random() < 0.3:
            script += bytes([7, 2])
    return bytes(script)


def connection_of(kernel: ModuleType) -> Any:
    return Story(kernel, b"", FRAMES, BINDINGS)._connection


def test_a_connection_without_a_world_reads_nothing(kernel: ModuleType) -> None:
    for world in (None, (1, 2)):
        connection = connection_of(kernel)
        connection._world = world
        with pytest.raises((TypeError, AttributeError)):
            connection.buffer_updated(1)


def test_connections_in_a_cycle_are_collected(kernel: ModuleType) -> None:
    story = Story(kernel, _script(Random(1)), FRAMES, BINDINGS)
    connection = story._connection
    connection.session = connection
    connection._binding = [connection]
    found = weakref.ref(connection)

    del story, connection
    gc.collect()

    assert found() is None


FAILING = [b"", *(bytes([7, 14 + 16 * part]) for part in range(10)), bytes([7, 1 + 16 * 8])]
"""Nothing, a part of the world, or a socket with TLS, of which the kernel is asked."""


@pytest.mark.parametrize("change", FAILING)
def test_turns_leave_no_memory_behind(native: ModuleType, change: bytes) -> None:
    story = Story(native, b"", FRAMES[:4], BINDINGS)
    script = bytes([6, 0, *change, 0, 0, 0, 0, 0, 1, 0, 9, 0, 0, 0, 2, 4, 5, 3, 7, 2])

    def tell_often(count: int) -> int:
        for _ in range(count):
            story._script, story._unsent = iter(script), b""
            story._run()
            story._connection._slots.clear()
            story._connection._request_count = 0
            story.told.clear()
        gc.collect()
        return sys.getallocatedblocks()

    before = tell_often(50)

    assert tell_often(500) - before < 250  # a leak has one or more blocks per turn


def test_a_slab_is_left_when_it_has_less_room_than_the_least(kernel: ModuleType) -> None:
    for room, expected in ((ROOM_BYTES_MIN, ROOM_BYTES_MIN), (ROOM_BYTES_MIN - 1, SIZES[1] - 1)):
        connection = connection_of(kernel)
        slab = connection._slab = SlabPool(SlabSettings()).take_small()
        slab.acquire()  # a batch is in it
        connection._high = SMALL_BYTES - room
        connection._low = connection._high - 1

        assert len(connection.get_buffer(-1)) == expected


def test_what_is_needed_of_a_known_request_decides_about_room(kernel: ModuleType) -> None:
    for need, is_left in ((SMALL_BYTES - 10, False), (SMALL_BYTES - 9, True)):
        connection = connection_of(kernel)
        slab = connection._slab = SlabPool(SlabSettings()).take_small()
        slab.acquire()
        connection._low, connection._high, connection._need = 10, SMALL_BYTES - 5, need

        connection.get_buffer(-1)

        assert (connection._slab is not slab) == is_left


def test_flags_and_numbers_keep_their_kind(kernel: ModuleType) -> None:
    connection = connection_of(kernel)

    assert connection._is_frugal is False
    assert connection.quota_wait is None
    assert connection._frame_since == 0.0
    assert (connection._low, connection.arrived, connection._request_count) == (0, 0, 0)
