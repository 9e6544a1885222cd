"""Small batches are read on the event loop, within its budget per turn; all others in a thread, and none beyond the limit."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from bearlake.errors import Corrupt, TooLarge
from bearlake.protocols.pulsar import entries
from bearlake.protocols.pulsar.entries import Buffer
from bearlake.protocols.pulsar.opening import AT_ONCE_BYTES, Opener
from bearlake.records.batch import Compression
from bearlake.records.codec import Record, encode
from bearlake.streams.checking import Checks, CheckSettings

MIB = 1024 * 1024
CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]


@pytest.fixture
def checks() -> Iterator[Checks]:
    checks = Checks(CheckSettings(loop_bytes_max=MIB))
    yield checks
    checks.close()


def batch_of(size: int, codec: Compression = Compression.ZSTD) -> memoryview:
    return memoryview(encode([Record(value=bytes(size), timestamp=1)], codec=codec))


def place(records: Buffer | None, bytes_max: int) -> tuple[bool, int]:
    """Whether this runs on the event loop's thread, and the size of the records."""
    return threading.current_thread() is threading.main_thread(), len(records or b"")


@pytest.mark.parametrize("codec", [Compression.NONE, *CODECS])
async def test_a_small_batch_is_read_on_the_event_loop(checks: Checks, codec: Compression) -> None:
    opener = Opener(checks, 64 * MIB)

    is_on_loop, _ = await opener.opened(batch_of(64 * 1024, codec), place)

    assert is_on_loop


@pytest.mark.parametrize("codec", CODECS)
async def test_a_large_batch_is_read_in_a_thread(checks: Checks, codec: Compression) -> None:
    opener, batch = Opener(checks, 64 * MIB), batch_of(AT_ONCE_BYTES, codec)

    assert opener.at_once(batch, place) is None
    is_on_loop, size = await opener.opened(batch, place)

    assert not is_on_loop
    assert size > AT_ONCE_BYTES


async def test_batches_of_one_turn_share_its_budget(checks: Checks) -> None:
    opener, batch = Opener(checks, 64 * MIB), batch_of(200 * 1024)

    first = [opener.at_once(batch, place) is None for _ in range(8)]
    is_on_loop, _ = await opener.opened(batch, place)

    assert first == [False] * 5 + [True] * 3
    assert is_on_loop, "the next turn has a budget of its own"


async def test_a_budget_that_others_have_spent_delays_nobody_for_more_than_a_turn(checks: Checks) -> None:
    opener, batch = Opener(checks, 64 * MIB), batch_of(200 * 1024)
    found: list[tuple[bool, int]] = []

    async def read() -> None:
        found.append(await opener.opened(batch, place))

    await asyncio.gather(*(read() for _ in range(12)))

    assert len(found) == 12
    assert sum(is_on_loop for is_on_loop, _ in found) == 4 + 5, "in this turn and the next; threads read the others"


@pytest.mark.parametrize("codec", CODECS)
async def test_no_more_is_decompressed_than_the_limit(checks: Checks, codec: Compression) -> None:
    opener = Opener(checks, MIB)

    with pytest.raises(TooLarge):
        await opener.opened(batch_of(MIB, codec), place)


async def test_a_batch_of_snappy_with_many_tiny_blocks_is_read_in_a_thread(checks: Checks) -> None:
    """Each block costs a call, however little it holds."""
    opener = Opener(checks, 64 * MIB)
    head = batch_of(100, Compression.SNAPPY)[:61]
    blocks = b"\x82SNAPPY\0" + (1).to_bytes(4, "big") * 2 + ((1).to_bytes(4, "big") + b"\0") * 16 * 1024

    assert opener.at_once(memoryview(bytes(head) + blocks), place) is None


async def test_an_entry_of_many_missing_offsets_is_filled_in_a_thread(checks: Checks) -> None:
    """Clients get 8 bytes for each offset without a record, and only the header says how many offsets there are."""
    opener = Opener(checks, MIB)
    batch = bytearray(encode([Record(value=b"x", timestamp=1)]))
    batch[23:27] = (900_000).to_bytes(4, "big")

    def read(records: Buffer | None, bytes_max: int) -> entries.ReadEntry:
        return entries.from_records(memoryview(batch), 0, entries.ANY_BYTES, records, bytes_max)

    assert opener.at_once(memoryview(batch), read) is None
    with pytest.raises(TooLarge):
        await opener.opened(memoryview(batch), read)


async def test_damage_is_reported_wherever_it_is_found(checks: Checks) -> None:
    opener = Opener(checks, 64 * MIB)

    with pytest.raises(Corrupt):
        opener.at_once(batch_of(1000)[:-4], place)
    with pytest.raises(Corrupt):
        await opener.opened(batch_of(MIB)[:-4], place)
