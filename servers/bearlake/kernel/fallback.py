"""The kernel in Python: the specification of the native kernel, and its replacement where the native kernel is not built.

Names, arguments (all positional), results and errors are those of `bearlake.kernel._native`; the docstrings of these functions are the
contract of both. Positions outside a buffer are a bug of the caller and raise `ValueError`; inconsistent bytes raise `Corrupt`.
"""

from bearlake.kernel.batch.batches import batches, find_run, inspect, rebase, seek
from bearlake.kernel.batch.checksum import crc32c
from bearlake.kernel.batch.compressed import check_batch
from bearlake.kernel.batch.records import check_records, decode_part, decode_records, find_timestamp
from bearlake.kernel.columns.builder import ColumnBuilder
from bearlake.kernel.columns.encode import encode_columns
from bearlake.kernel.columns.encode_pages import encode_pages
from bearlake.kernel.files.put import put_file
from bearlake.kernel.kafka.admission import admit_plain
from bearlake.kernel.kafka.binding import ProduceBinding
from bearlake.kernel.kafka.fetch import parse_fetch
from bearlake.kernel.kafka.fetch_response import encode_fetch
from bearlake.kernel.kafka.intake import take_produces
from bearlake.kernel.kafka.produce import parse_produce
from bearlake.kernel.kafka.produce_response import encode_produce_response
from bearlake.kernel.kafka.produce_results import ProduceResults
from bearlake.kernel.kafka.turn import ProduceTurn
from bearlake.kernel.log.buffer import WriteBuffer
from bearlake.kernel.log.offsets import OffsetAssignment
from bearlake.kernel.log.results import Results
from bearlake.kernel.pulsar.decode import decode_entry
from bearlake.kernel.pulsar.encode import encode_entry
from bearlake.kernel.pulsar.intake import take_sends
from bearlake.kernel.pulsar.messages import encode_messages
from bearlake.kernel.pulsar.routing import entry_routing
from bearlake.kernel.pulsar.send_results import SendResults
from bearlake.kernel.pulsar.sends import encode_receipts, next_sender, parse_sends
from bearlake.kernel.typed.avro_decode import decode_avro
from bearlake.kernel.typed.avro_encode import encode_avro
from bearlake.kernel.typed.json_values import decode_json
from bearlake.kernel.typed.protobuf_check import check_protobuf
from bearlake.kernel.typed.protobuf_encode import encode_protobuf
from bearlake.kernel.typed.protobuf_values import decode_protobuf

__all__ = [
    "ColumnBuilder",
    "OffsetAssignment",
    "ProduceBinding",
    "ProduceResults",
    "ProduceTurn",
    "Results",
    "SendResults",
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
