"""Admission: checks a batch's header, and if the stream requires it the records, against the stream's rules.

The kernel has already checked that the batch is consistent (`kernel.inspect`). This module never changes a batch; a stream with
`message.timestamp.type=LogAppendTime` stores a stamped copy.

Source: Apache Kafka, LogValidator (timestamps, sizes, KIP-467 record errors), KIP-937 (timestamp bounds).
"""

from typing import NamedTuple

from bearlake.errors import BearlakeError, Denied, Invalid, TooLarge
from bearlake.metadata.model import BATCH_CONTROL, BATCH_TRANSACTIONAL
from bearlake.objects import Buffer
from bearlake.records import batch as record_batch
from bearlake.records import codec as record_codec
from bearlake.streams.append import Append, Hold
from bearlake.streams.catalog import StreamView
from bearlake.streams.checking import Checked, check_records, needs_check, needs_schemas
from bearlake.streams.configs import TimestampSource

NO_TIMESTAMP = -1
UNCOMPRESSED_BYTES_MAX = 256 * 1024 * 1024
"""Largest decompressed size (bytes) of a batch that is read; refuses decompression bombs."""


class BadTimestamp(Invalid):
    """A record's timestamp is too far from the server's clock."""


class Importing(Denied):
    """Only the import of the stream changes its records and partitions, until the stream is promoted (decision 227)."""

    def __init__(self, name: str) -> None:
        """`name`: the stream's."""
        super().__init__(f"stream {name!r} is being imported: only its import changes it until it is promoted")


class Header(NamedTuple):
    """The header fields that the rules check, from `kernel.inspect` or `kernel.parse_produce`."""

    attributes: int
    record_count: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


def admit(
    view: StreamView,
    index: int,
    batch: Buffer,
    hold: Hold | None,
    header: Header,
    now_ms: int,
    known: Checked = Checked.NOTHING,
) -> Append | BearlakeError:
    """Return the batch as an `Append` to partition `index` (which exists), or the error for its producer.

    `known` says which checks of single records the caller has made (`checking.Checks`); this function makes the others, whatever they take,
    except those that may need a look-up: the caller has validated the records by their schemas.
    Returned errors: `Importing`, `TooLarge`, `BadTimestamp`, `BadRecord`.
    """
    rules = view.rules
    if rules.is_imported:
        return Importing(view.name)
    max_timestamp = header.max_timestamp
    if len(batch) > rules.batch_bytes_max:
        return TooLarge("record batch", len(batch), rules.batch_bytes_max)
    if rules.timestamp_source is TimestampSource.CREATE:
        latest, earliest = now_ms + rules.timestamp_after_max_ms, now_ms - rules.timestamp_before_max_ms
        if not (max_timestamp <= latest and (header.base_timestamp >= earliest or max_timestamp == NO_TIMESTAMP)):
            return BadTimestamp(
                f"timestamps {header.base_timestamp} to {max_timestamp}: expected {max(earliest, 0)} to {latest}"
            )
    assert not needs_schemas(rules, known), "the caller has validated the records by their schemas"
    if needs_check(rules, known):
        try:
            check_records(batch, rules, known, UNCOMPRESSED_BYTES_MAX)
        except BearlakeError as error:
            return error
    if rules.timestamp_source is TimestampSource.LOG_APPEND:
        batch, hold, max_timestamp = record_codec.stamp(batch, now_ms), None, now_ms
    flags = 0
    if header.attributes & (record_batch.ATTRIBUTE_TRANSACTIONAL | record_batch.ATTRIBUTE_CONTROL):
        flags = BATCH_TRANSACTIONAL * record_batch.is_transactional(header.attributes)
        flags |= BATCH_CONTROL * record_batch.is_control(header.attributes)
    return Append(
        view.partition(index),
        view.id_bytes,
        batch,
        hold,
        header.record_count,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        flags,
    )
