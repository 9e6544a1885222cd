"""The kernel in Python: the specification of the native one, and what runs where no C compiler was found.

Same names, arguments (all positional), results and errors as `bearlake.kernel._native`; the docstrings here are the contract of
both. Positions outside a buffer are a bug of the caller and raise `ValueError`; bytes that contradict themselves raise `Corrupt`.
"""

from bearlake.kernel.fallback.batches import batches, inspect, rebase, seek, take
from bearlake.kernel.fallback.checksum import crc32c
from bearlake.kernel.fallback.files import put_file
from bearlake.kernel.fallback.produce import encode_produce_response, parse_produce
from bearlake.kernel.fallback.records import check_records, decode_records, find_timestamp

__all__ = [
    "batches",
    "check_records",
    "crc32c",
    "decode_records",
    "encode_produce_response",
    "find_timestamp",
    "inspect",
    "parse_produce",
    "put_file",
    "rebase",
    "seek",
    "take",
]
