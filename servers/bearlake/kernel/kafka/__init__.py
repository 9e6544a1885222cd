"""Kafka's Produce and Fetch: parse requests, admit batches to the log and encode the responses.

    produce     parse the body of a request
    admission   admit entries that need no further checks
    intake      take many consecutive requests at once
    binding     the same for one client and one topic, whose rights and rules were asked before
    turn        the turn of a connection whose requests are bound
    respond     encode the frame of a response
    fetch       ordinary Fetch requests and their responses

Source: Apache Kafka, ProduceRequest.json and ProduceResponse.json; KIP-482 (flexible versions from 9 on), KIP-516 (topic ids, 13).
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

ELEMENTS_MAX = 20_000
"""Topics, partitions and tagged fields of one Produce request, and partitions of requests that are parsed together. A malformed partition
takes 8 bytes, and its error as much time as a batch."""

ProduceEntry: TypeAlias = tuple[str | bytes, int, int, int, int, int, int, int, int, int, int, int]
"""(topic, index, start, end, status, attributes, record_count, base_timestamp, max_timestamp, producer_id, producer_epoch,
base_sequence)"""

ProducePlace: TypeAlias = tuple[str | bytes, int]
"""(topic, index) of a batch"""

ProduceResult: TypeAlias = tuple[str | bytes, int, int, int, int, int]
"""(topic, index, error_code, base_offset, log_append_time_ms, log_start_offset)"""

PlainRules: TypeAlias = tuple[bytes, int, int, int, int, int, int]
"""(stream_id, key of the stream's partition 0, partition_count, batch_bytes_max, earliest base timestamp, latest max timestamp,
1 if records are checked)"""


class BoundTransaction(NamedTuple):
    """The transactional id of requests, and the one producer whose transactional batches need no question."""

    transactional_id: str
    producer_id: int
    flags: int
    """Of these batches."""


FetchEntry: TypeAlias = tuple[str | bytes, int, int, int, int]
"""(topic, index, current leader epoch or -1, offset, bytes_max) of a partition in a Fetch request"""

FetchAnswer: TypeAlias = tuple[int, int, int, list[memoryview]]
"""(start, end, last stable offset, views of whole batches): what a partition's reader gets"""


class TurnWorld(NamedTuple):
    """What the connections of a server share, for `ProduceTurn`. Functions are called with the arguments that their comments name."""

    generation: Any
    """Its `number` changes when bindings end."""
    buffer_with_room: Callable[[], Any]
    """Returns the open `WriteBuffer`, or None while connections should stop reading."""
    added: Callable[[Any], None]
    """Called with requests whose batches are in that buffer."""
    calls: Callable[[Any], Any]
    """Called with `outcome`; returns `ProduceResults` that have `began(connection, caller)`."""
    outcome: tuple[int, int, int]
    now_ms: Callable[[], int]
    time: Callable[[], float]
    """The clock of the event loop (s)."""
    budget: Any
    """`left`: bytes of compressed records that may be checked in this turn; `spend(count)` takes from them."""
    doing: Any
    """Its `request` becomes `what` before requests are taken."""
    what: str
    received: Any
    """A counter with the bytes that have arrived as `value`."""
    requests: Any
    """A counter of requests that were taken."""
    request_count_max: int
    """Requests of a connection in progress."""
    ready_bytes_max: int
    waiting_bytes_max: int
    read_bytes: int
    """Bytes of one read."""
    room_bytes_min: int
    """Room of a slab below which another one is needed, unless the size of the next request is known."""
    slab_bytes_min: int
    slab_bytes_max: int
    """The smallest and largest pooled slab."""
