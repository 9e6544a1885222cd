"""The record-batch kernel: the few functions where Python is too slow, native with a Python fallback.

`bearlake.kernel._native` (C, built by the ordinary install, see `hatch_build.py`) and `bearlake.kernel.fallback` (Python) have the
same functions and pass the same tests (`tests/kernel/`). `IS_NATIVE` says which one is in use; the environment variable
BEARLAKE_KERNEL is `require` (fail without the native one) or `skip` (use the Python one) where a choice is wanted.
The contract of each function is its docstring in `bearlake.kernel.fallback`. All arguments are positional.

A record batch v2 (magic 2) begins with this header, big-endian (source: Apache Kafka, "Message format"; KIP-98):

    offset  0  int64   base offset            (not covered by the CRC: assigned at commit)
    offset  8  int32   batch length           (bytes behind this field)
    offset 12  int32   partition leader epoch (not covered by the CRC)
    offset 16  int8    magic = 2
    offset 17  uint32  CRC32C of everything from offset 21 on
    offset 21  int16   attributes: 0-2 compression, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon
    offset 23  int32   last offset delta
    offset 27  int64   base timestamp (ms)
    offset 35  int64   max timestamp (ms)
    offset 43  int64   producer id
    offset 51  int16   producer epoch
    offset 53  int32   base sequence
    offset 57  int32   record count
    offset 61  …       records
"""

import os
from typing import TYPE_CHECKING

from bearlake.kernel.header import (
    HEADER_BYTES,
    AppendLike,
    BatchHeader,
    BatchStatus,
    Columns,
    DecodeStatus,
    DeliveryLike,
    EncodedBatch,
    PlainRules,
    ProduceEntry,
    ProduceOutcome,
    ProduceRequestPlace,
    ProduceResult,
    QueuedBatch,
    RecordFields,
    SendEntry,
    SendIds,
    SliceLike,
)

IS_NATIVE = False

if TYPE_CHECKING:
    from bearlake.kernel.fallback import (
        ColumnBuilder,
        admit_plain,
        assign_offsets,
        batches,
        check_records,
        crc32c,
        decode_entry,
        decode_records,
        encode_columns,
        encode_entry,
        encode_messages,
        encode_produce_appended,
        encode_produce_response,
        encode_receipts,
        entry_routing,
        find_timestamp,
        inspect,
        parse_produce,
        parse_produces,
        parse_sends,
        place_appends,
        put_file,
        queue_appends,
        rebase,
        release_appends,
        resolve_appends,
        seek,
        take,
    )
else:
    _wish = os.environ.get("BEARLAKE_KERNEL", "try")
    try:
        if _wish == "skip":
            raise ImportError("BEARLAKE_KERNEL=skip")
        from bearlake.kernel import _native as _implementation

        IS_NATIVE = True
    except ImportError:
        if _wish == "require":
            raise
        from bearlake.kernel import fallback as _implementation

    ColumnBuilder = _implementation.ColumnBuilder
    admit_plain = _implementation.admit_plain
    assign_offsets = _implementation.assign_offsets
    encode_produce_appended = _implementation.encode_produce_appended
    place_appends = _implementation.place_appends
    queue_appends = _implementation.queue_appends
    release_appends = _implementation.release_appends
    resolve_appends = _implementation.resolve_appends
    batches = _implementation.batches
    check_records = _implementation.check_records
    crc32c = _implementation.crc32c
    decode_entry = _implementation.decode_entry
    decode_records = _implementation.decode_records
    encode_columns = _implementation.encode_columns
    encode_entry = _implementation.encode_entry
    encode_messages = _implementation.encode_messages
    encode_produce_response = _implementation.encode_produce_response
    encode_receipts = _implementation.encode_receipts
    entry_routing = _implementation.entry_routing
    find_timestamp = _implementation.find_timestamp
    inspect = _implementation.inspect
    parse_produce = _implementation.parse_produce
    parse_produces = _implementation.parse_produces
    parse_sends = _implementation.parse_sends
    put_file = _implementation.put_file
    rebase = _implementation.rebase
    seek = _implementation.seek
    take = _implementation.take

__all__ = [
    "HEADER_BYTES",
    "IS_NATIVE",
    "AppendLike",
    "BatchHeader",
    "BatchStatus",
    "ColumnBuilder",
    "Columns",
    "DecodeStatus",
    "DeliveryLike",
    "EncodedBatch",
    "PlainRules",
    "ProduceEntry",
    "ProduceOutcome",
    "ProduceRequestPlace",
    "ProduceResult",
    "QueuedBatch",
    "RecordFields",
    "SendEntry",
    "SendIds",
    "SliceLike",
    "admit_plain",
    "assign_offsets",
    "batches",
    "check_records",
    "crc32c",
    "decode_entry",
    "decode_records",
    "encode_columns",
    "encode_entry",
    "encode_messages",
    "encode_produce_appended",
    "encode_produce_response",
    "encode_receipts",
    "entry_routing",
    "find_timestamp",
    "inspect",
    "parse_produce",
    "parse_produces",
    "parse_sends",
    "place_appends",
    "put_file",
    "queue_appends",
    "rebase",
    "release_appends",
    "resolve_appends",
    "seek",
    "take",
]
