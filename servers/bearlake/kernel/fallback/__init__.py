"""The kernel in Python: the specification of the native one, and what runs where no C compiler was found.

Same names, arguments (all positional), results and errors as `bearlake.kernel._native`; the docstrings here are the contract of
both. Positions outside a buffer are a bug of the caller and raise `ValueError`; bytes that contradict themselves raise `Corrupt`.
"""

from bearlake.kernel.fallback.appends import (
    admit_plain,
    assign_offsets,
    place_appends,
    queue_appends,
    release_appends,
    resolve_appends,
)
from bearlake.kernel.fallback.batches import batches, inspect, rebase, seek, take
from bearlake.kernel.fallback.checksum import crc32c
from bearlake.kernel.fallback.columns import ColumnBuilder
from bearlake.kernel.fallback.encode import encode_columns
from bearlake.kernel.fallback.files import put_file
from bearlake.kernel.fallback.produce import (
    encode_produce_appended,
    encode_produce_response,
    parse_produce,
    parse_produces,
)
from bearlake.kernel.fallback.pulsar import encode_entry
from bearlake.kernel.fallback.pulsar_decode import decode_entry, entry_routing
from bearlake.kernel.fallback.pulsar_messages import encode_messages
from bearlake.kernel.fallback.pulsar_sends import encode_receipts, parse_sends
from bearlake.kernel.fallback.records import check_records, decode_records, find_timestamp

__all__ = [
    "ColumnBuilder",
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
