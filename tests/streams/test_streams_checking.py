"""Checks of batches that clients encoded: what is found, what is done at once, and what a thread does."""

import asyncio

import lz4.frame
import pytest

from bearlake import kernel
from bearlake.errors import BearlakeError, Corrupt, TooLarge
from bearlake.records import codec
from bearlake.records.batch import Compression
from bearlake.records.codec import Record, encode
from bearlake.streams import configs
from bearlake.streams.checking import BadRecord, Checked, Checks, CheckSettings, check_records, needs_check
from bearlake.streams.value_rules import schema_rules

MIB = 1024 * 1024
DEFAULT = configs.rules({})
HEADER_ONLY = configs.rules({"record.validation": "header"})
KEYED = configs.rules({"cleanup.policy": "compact"})
VALIDATED = configs.rules({}, schema_rules("t", {"schema.validation": "id"}))
COMPRESSED = [codec for codec in Compression if codec is not Compression.NONE]


def resealed(batch: bytearray) -> bytes:
    batch[17:21] = kernel.crc32c(batch, 21).to_bytes(4, "big")
    return bytes(batch)


def with_body(batch: bytes, body: bytes) -> bytes:
    """The batch with other bytes after its header, and a matching length and checksum."""
    changed = bytearray(batch[: kernel.HEADER_BYTES] + body)
    changed[8:12] = (len(changed) - 12).to_bytes(4, "big")
    return resealed(changed)


def claiming(batch: bytes, record_count: int) -> bytes:
    changed = bytearray(batch)
    changed[23:27] = (record_count - 1).to_bytes(4, "big")
    changed[57:61] = record_count.to_bytes(4, "big")
    return resealed(changed)


def attributes(batch: bytes) -> int:
    header = kernel.inspect(batch, 0, len(batch))
    assert not isinstance(header, int)
    return header.attributes


def zeros(size: int) -> bytes:
    return encode([Record(value=bytes(size))], codec=Compression.ZSTD)


def at_once(checks: Checks, batch: bytes, rules: configs.StreamRules = DEFAULT) -> BearlakeError | bool:
    return checks.at_once(batch, attributes(batch), rules, Checked.NOTHING)


@pytest.mark.parametrize("compression", COMPRESSED)
def test_a_batch_with_damaged_compressed_bytes_is_refused_by_default(compression: Compression) -> None:
    """A consumer that meets such a batch stops at its offset for good."""
    good = encode([Record(value=b"v" * 100)], codec=compression)
    poison = with_body(good, b"\xde\xad\xbe\xef" * 8)

    assert check_records(good, DEFAULT, Checked.NOTHING, MIB) > 100
    with pytest.raises(Corrupt):
        check_records(poison, DEFAULT, Checked.NOTHING, MIB)


@pytest.mark.parametrize("options", [{}, {"store_size": True}, {"content_checksum": True}, {"block_checksum": True}])
def test_lz4_is_refused_in_forms_that_javas_client_does_not_read(options: dict[str, bool]) -> None:
    """Lz4BlockInputStream: "Dependent block stream is unsupported", and it ends with the first frame."""
    records = [Record(value=b"v" * 300_000)]  # several blocks: a single one cannot be linked
    body, batch = encode(records)[kernel.HEADER_BYTES :], encode(records, codec=Compression.LZ4)
    cut = len(body) // 2

    def frame(content: bytes, *, is_linked: bool = False) -> bytes:
        return bytes(lz4.frame.compress(content, block_linked=is_linked, **{"store_size": False, **options}))

    assert check_records(with_body(batch, frame(body)), DEFAULT, Checked.NOTHING, MIB) == len(body)
    for section in (frame(body, is_linked=True), frame(body[:cut]) + frame(body[cut:]), frame(body) + frame(b"")):
        with pytest.raises(Corrupt, match="one frame with independent blocks"):
            check_records(with_body(batch, section), DEFAULT, Checked.NOTHING, MIB)


@pytest.mark.parametrize("compression", list(Compression))
def test_a_batch_that_claims_other_records_than_it_has_is_refused_by_default(compression: Compression) -> None:
    batch = encode([Record(value=b"v" * 50), Record(value=b"w" * 50)], codec=compression)

    for count in (1, 3, 14):
        with pytest.raises(BadRecord):
            check_records(claiming(batch, count), DEFAULT, Checked.NOTHING, MIB)


def test_a_checked_batch_is_not_checked_again() -> None:
    assert [needs_check(DEFAULT, known) for known in Checked] == [True, False, False, False]
    assert [needs_check(HEADER_ONLY, known) for known in Checked] == [False, False, False, False]
    assert [needs_check(VALIDATED, known) for known in Checked] == [True, True, False, False]
    assert [needs_check(KEYED, known) for known in Checked] == [True, True, True, False]


async def test_small_batches_are_checked_at_once() -> None:
    checks = Checks(CheckSettings())

    assert at_once(checks, zeros(1000)) is True
    assert isinstance(at_once(checks, claiming(zeros(1000), 2)), BadRecord)
    checks.close()


async def test_a_turn_of_the_event_loop_checks_a_bounded_number_of_bytes() -> None:
    checks = Checks(CheckSettings(loop_bytes_max=MIB))
    batch = zeros(400_000)

    assert [at_once(checks, batch) for _ in range(4)] == [True, True, False, False]
    await asyncio.sleep(0)
    assert at_once(checks, batch) is True
    checks.close()


async def test_a_batch_that_expands_beyond_the_budget_goes_to_a_thread() -> None:
    checks = Checks(CheckSettings(loop_bytes_max=MIB))
    bomb = zeros(8 * MIB)
    assert len(bomb) < 2000

    assert at_once(checks, bomb) is False
    assert await checks.check(bomb, attributes(bomb), DEFAULT, Checked.NOTHING) is None
    checks.close()


async def test_a_decompression_bomb_is_refused_and_takes_no_more_than_the_limit() -> None:
    checks = Checks(CheckSettings(uncompressed_bytes_max=MIB))
    bomb = zeros(8 * MIB)

    error = await checks.check(bomb, attributes(bomb), DEFAULT, Checked.NOTHING)

    assert isinstance(error, TooLarge)
    assert error.bytes_max == MIB
    checks.close()


async def test_a_stream_that_trusts_its_producers_checks_headers_only() -> None:
    checks = Checks(CheckSettings())

    assert at_once(checks, with_body(zeros(10), b"garbage"), HEADER_ONLY) is True
    checks.close()


def test_a_batch_of_a_million_records_is_decoded_in_parts() -> None:
    """A batch of less than 1 KiB: its records as objects take 200 MiB."""
    record = encode([Record()])[kernel.HEADER_BYTES :]
    count = 10 * codec.PART_RECORD_COUNT
    batch = claiming(with_body(zeros(1), bytes(codec.compression.compress(Compression.ZSTD, record * count))), count)
    assert len(batch) < 1024

    parts = codec.parts(batch, MIB)

    assert len(next(parts)) == codec.PART_RECORD_COUNT
    assert sum(len(part) for part in parts) == 9 * codec.PART_RECORD_COUNT


def test_parts_of_a_batch_are_its_records() -> None:
    records = [Record(key=b"%d" % at, timestamp=at) for at in range(3)]
    batch = encode(records, codec=Compression.LZ4)

    assert [fields for part in codec.parts(batch, MIB) for fields in part] == codec.fields(batch, MIB)
    with pytest.raises(Corrupt):
        list(codec.parts(claiming(batch, 2), MIB))
