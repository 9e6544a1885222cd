"""The record-batch kernel: the few functions that are too slow in Python, written in C with a Python fallback.

Each folder is named after what it handles. A folder holds each C source next to its Python twin of the same name, and its `__init__.py`
defines the types that both take and return:

    batch      record batches: checksum, headers, records
    columns    records as columns, and back
    log        batches between a request and its commit
    kafka      Produce and Fetch requests and responses
    pulsar     Pulsar entries
    files      durable files
    typed      values of a schema as typed columns, and back

`.importlinter` defines which folder may import which; C includes follow the same rule. Other packages import only this module.

`bearlake.kernel._native` (C, one extension, built by the ordinary install, see `hatch_build.py`) and `bearlake.kernel.fallback` (Python)
have the same functions and pass the same tests (`tests/kernel/`). `IS_NATIVE` says which kernel is in use. The environment variable
BEARLAKE_KERNEL can be `require` (fail without the native kernel) or `skip` (use the Python kernel). A native kernel that was built for
another version of this package is skipped with a `RuntimeWarning`.
The contract of each function is the docstring of its Python twin. All arguments are positional.
"""

import os
import warnings
from importlib.util import find_spec
from typing import TYPE_CHECKING

from bearlake.kernel.batch import HEADER_BYTES, RECORDS_MAX, BatchHeader, BatchStatus, RecordFields, SliceLike
from bearlake.kernel.batch.lz4 import is_plain as is_plain_lz4
from bearlake.kernel.columns import Columns, DecodeStatus, EncodedBatch
from bearlake.kernel.columns.pages import ValuePage
from bearlake.kernel.files import FILE_PARTS_MAX
from bearlake.kernel.kafka import (
    BoundTransaction,
    FetchAnswer,
    FetchEntry,
    PlainRules,
    ProduceEntry,
    ProducePlace,
    ProduceResult,
    TurnWorld,
)
from bearlake.kernel.log import (
    BATCH_CONTROL,
    BATCH_NAMED,
    PARTITION_BITS,
    Append,
    BatchCommit,
    Hold,
    PartitionKey,
    ProduceOutcome,
)
from bearlake.kernel.log.rows import CommitRows, Rows
from bearlake.kernel.pulsar import DeliveryLike, SendBinding, SendEntry, SendIds
from bearlake.kernel.typed import (
    CHECKED_KINDS,
    DECIMAL_DIGITS_MAX,
    FIXED_BYTES_MAX,
    NODES_MAX,
    OUTCOME_BITS,
    TypedKind,
    TypedNode,
    TypedOutcome,
    TypedSchema,
    TypedSlots,
    TypedSource,
)
from bearlake.kernel.typed.protobuf import KINDS as PROTO_KINDS
from bearlake.kernel.typed.protobuf import PACKABLE as PROTO_PACKABLE
from bearlake.kernel.typed.protobuf import ProtoCoding, ProtoLabel, ProtoWire
from bearlake.kernel.typed.protobuf_check import ProtoCheck

IS_NATIVE = False

if TYPE_CHECKING:
    from bearlake.kernel.fallback import (
        ColumnBuilder,
        OffsetAssignment,
        ProduceBinding,
        ProduceResults,
        ProduceTurn,
        Results,
        SendResults,
        WriteBuffer,
        admit_plain,
        batches,
        check_batch,
        check_protobuf,
        check_records,
        crc32c,
        decode_avro,
        decode_entry,
        decode_json,
        decode_part,
        decode_protobuf,
        decode_records,
        encode_avro,
        encode_columns,
        encode_entry,
        encode_fetch,
        encode_messages,
        encode_pages,
        encode_produce_response,
        encode_protobuf,
        encode_receipts,
        entry_routing,
        find_run,
        find_timestamp,
        inspect,
        next_sender,
        parse_fetch,
        parse_produce,
        parse_sends,
        put_file,
        rebase,
        seek,
        take_produces,
        take_sends,
    )
else:
    _wish = os.environ.get("BEARLAKE_KERNEL", "try")
    try:
        if _wish == "skip":
            raise ImportError("BEARLAKE_KERNEL=skip")
        from bearlake.kernel import _native as _implementation

        IS_NATIVE = True
    except ImportError as error:
        if _wish == "require":
            raise
        if _wish != "skip" and find_spec("bearlake.kernel._native") is not None:
            warnings.warn(f"the native kernel is not used, build it again: {error}", RuntimeWarning, stacklevel=2)
        from bearlake.kernel import fallback as _implementation

    ColumnBuilder = _implementation.ColumnBuilder
    OffsetAssignment = _implementation.OffsetAssignment
    ProduceBinding = _implementation.ProduceBinding
    ProduceResults = _implementation.ProduceResults
    ProduceTurn = _implementation.ProduceTurn
    Results = _implementation.Results
    SendResults = _implementation.SendResults
    WriteBuffer = _implementation.WriteBuffer
    admit_plain = _implementation.admit_plain
    batches = _implementation.batches
    check_batch = _implementation.check_batch
    check_protobuf = _implementation.check_protobuf
    check_records = _implementation.check_records
    crc32c = _implementation.crc32c
    decode_avro = _implementation.decode_avro
    decode_entry = _implementation.decode_entry
    decode_json = _implementation.decode_json
    decode_part = _implementation.decode_part
    decode_protobuf = _implementation.decode_protobuf
    decode_records = _implementation.decode_records
    encode_avro = _implementation.encode_avro
    encode_columns = _implementation.encode_columns
    encode_entry = _implementation.encode_entry
    encode_fetch = _implementation.encode_fetch
    encode_messages = _implementation.encode_messages
    encode_pages = _implementation.encode_pages
    encode_produce_response = _implementation.encode_produce_response
    encode_protobuf = _implementation.encode_protobuf
    encode_receipts = _implementation.encode_receipts
    entry_routing = _implementation.entry_routing
    find_run = _implementation.find_run
    find_timestamp = _implementation.find_timestamp
    inspect = _implementation.inspect
    next_sender = _implementation.next_sender
    parse_fetch = _implementation.parse_fetch
    parse_produce = _implementation.parse_produce
    parse_sends = _implementation.parse_sends
    put_file = _implementation.put_file
    rebase = _implementation.rebase
    seek = _implementation.seek
    take_produces = _implementation.take_produces
    take_sends = _implementation.take_sends

__all__ = [
    "BATCH_CONTROL",
    "BATCH_NAMED",
    "CHECKED_KINDS",
    "DECIMAL_DIGITS_MAX",
    "FILE_PARTS_MAX",
    "FIXED_BYTES_MAX",
    "HEADER_BYTES",
    "IS_NATIVE",
    "NODES_MAX",
    "OUTCOME_BITS",
    "PARTITION_BITS",
    "PROTO_KINDS",
    "PROTO_PACKABLE",
    "RECORDS_MAX",
    "Append",
    "BatchCommit",
    "BatchHeader",
    "BatchStatus",
    "BoundTransaction",
    "ColumnBuilder",
    "Columns",
    "CommitRows",
    "DecodeStatus",
    "DeliveryLike",
    "EncodedBatch",
    "FetchAnswer",
    "FetchEntry",
    "Hold",
    "OffsetAssignment",
    "PartitionKey",
    "PlainRules",
    "ProduceBinding",
    "ProduceEntry",
    "ProduceOutcome",
    "ProducePlace",
    "ProduceResult",
    "ProduceResults",
    "ProduceTurn",
    "ProtoCheck",
    "ProtoCoding",
    "ProtoLabel",
    "ProtoWire",
    "RecordFields",
    "Results",
    "Rows",
    "SendBinding",
    "SendEntry",
    "SendIds",
    "SendResults",
    "SliceLike",
    "TurnWorld",
    "TypedKind",
    "TypedNode",
    "TypedOutcome",
    "TypedSchema",
    "TypedSlots",
    "TypedSource",
    "ValuePage",
    "WriteBuffer",
    "admit_plain",
    "batches",
    "check_batch",
    "check_protobuf",
    "check_records",
    "crc32c",
    "decode_avro",
    "decode_entry",
    "decode_json",
    "decode_part",
    "decode_protobuf",
    "decode_records",
    "encode_avro",
    "encode_columns",
    "encode_entry",
    "encode_fetch",
    "encode_messages",
    "encode_pages",
    "encode_produce_response",
    "encode_protobuf",
    "encode_receipts",
    "entry_routing",
    "find_run",
    "find_timestamp",
    "inspect",
    "is_plain_lz4",
    "next_sender",
    "parse_fetch",
    "parse_produce",
    "parse_sends",
    "put_file",
    "rebase",
    "seek",
    "take_produces",
    "take_sends",
]
