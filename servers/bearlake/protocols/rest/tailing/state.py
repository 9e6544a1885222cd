"""State of the partitions of HTTP streams: in the stream's configs, and in this server's memory.

The configs hold, for all servers: the content type, whether the stream is closed, and its ends. Memory holds what any server can
rebuild: how far the log was read for `Stream-Seq`, and the largest `Stream-Seq` so far.
"""

import asyncio
import random
import re
from collections import OrderedDict
from dataclasses import dataclass, field

from aiohttp import web

from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.tailing.lifetimes import Lifetimes
from bearlake.serving.http.login import principal_of
from bearlake.streams import configs as stream_configs
from bearlake.streams.catalog import StreamView
from bearlake.streams.principal import Operation, Principal
from bearlake.streams.service import Streams

CONTENT_TYPE = "http.content.type"
CLOSED = "http.closed"
CLOSED_BY = "http.closed.by"
ENDS = "http.ends"
DEFAULT_TYPE = "application/octet-stream"
JSON_TYPE = "application/json"
START, NOW = "-1", "now"

_DIGITS = 20
_NUMBER = re.compile(r"0|[1-9][0-9]{0,15}")
_ZERO = re.compile(r"0{16}_0{16}")
"""The first offset in the reference server's format, which clients and tests use literally."""
_PARTITION_COUNT_MAX = 100_000
_CURSOR_EPOCH_S = 1_728_432_000  # 2024-10-09, section 8.1 of the protocol
_CURSOR_S = 20
_JITTER_S_MAX = 3600


@dataclass(slots=True)
class Tail:
    """This server's state of a partition."""

    sequence: str | None = None
    """The largest `Stream-Seq` before log offset `seen` (-1: not read yet). The config contains the state as of offset `stored`."""
    seen: int = -1
    stored: int = -1
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held during an append with `Stream-Seq`."""
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when this server has closed the stream; wakes followers."""


class Tails:
    """Finds partitions and caches this server's state of them."""

    def __init__(self, streams: Streams, lifetimes: Lifetimes, random_source: random.Random | None = None) -> None:
        self._streams = streams
        self._lifetimes = lifetimes
        self._random = random_source or random.SystemRandom()
        self._tails: OrderedDict[int, Tail] = OrderedDict()

    def get(self, view: StreamView, index: int) -> Tail:
        """Return this server's state of a partition."""
        key = view.partition(index)
        tail = self._tails.get(key)
        if tail is None:
            tail = self._tails[key] = Tail()
        self._tails.move_to_end(key)
        while len(self._tails) > _PARTITION_COUNT_MAX:
            self._tails.popitem(last=False)
        return tail

    async def find(self, request: web.Request, operation: Operation) -> tuple[StreamView, int]:
        """Return the path's stream and partition. Raises `Problem` (400, 404, 410)."""
        name, partition = request.match_info["name"], request.match_info.get("partition")
        return await self.of(principal_of(request), name, partition, operation)

    async def of(self, who: Principal, name: str, text: str | None, operation: Operation) -> tuple[StreamView, int]:
        """Return the named stream and partition; `text` None means the only partition. Raises `Problem` (400, 404, 410)."""
        if not self._streams.may(who, operation, name):
            raise _unknown(name)
        view = await self._lifetimes.find(name)
        if text is None:
            if view.partition_count > 1:
                raise Problem(
                    400,
                    400,
                    f"stream {name} has {view.partition_count} partitions: name a partition, as in /v1/stream/{name}/0",
                )
            return view, 0
        if not (text.isascii() and text.isdigit() and len(text) < 11 and int(text) < view.partition_count):
            raise Problem(404, 404, f"stream {name} has partitions 0 to {view.partition_count - 1}")
        return view, int(text)

    def cursor(self, given: str | None) -> str:
        """Return the cursor of a live answer, always greater than the client's cursor. Source: section 8.1."""
        now_s = self._streams.clock.now_ms() // 1000
        interval = (now_s - _CURSOR_EPOCH_S) // _CURSOR_S
        if given is not None and given.isascii() and given.isdigit() and len(given) < 16 and int(given) >= interval:
            interval = int(given) + max(1, self._random.randint(1, _JITTER_S_MAX) // _CURSOR_S)
        return str(interval)


def content_type(view: StreamView) -> str:
    """Return the stream's content type as its creator wrote it."""
    return stream_configs.value(view.stream.configs, CONTENT_TYPE) or DEFAULT_TYPE


def media_type(text: str) -> str:
    """Return a content type without parameters, in lower case."""
    return text.partition(";")[0].strip().lower()


def is_closed(view: StreamView) -> bool:
    """Return whether HTTP appends are rejected: the stream is closed, or terminated for all protocols."""
    return view.stream.is_terminated or stream_configs.value(view.stream.configs, CLOSED) == "true"


def closes(request: web.Request) -> bool:
    """Return whether the request closes its stream."""
    return request.headers.get("Stream-Closed", "").lower() == "true"


def closed_by(view: StreamView) -> str:
    """Return the producer's append that closed the stream; empty if none did."""
    return stream_configs.value(view.stream.configs, CLOSED_BY)


def closed_end(view: StreamView, index: int) -> int | None:
    """Return the end of a partition's log at the close; None if the stream is open or the end is not stored."""
    ends = stream_configs.value(view.stream.configs, ENDS).split(",")
    if not is_closed(view) or index >= len(ends) or not ends[index].isdecimal():
        return None
    return int(ends[index])


def token(offset: int) -> str:
    """Format an offset for clients."""
    return f"{offset:0{_DIGITS}}"


def parse_token(text: str) -> int | None:
    """Parse a client's offset; None if malformed."""
    if _ZERO.fullmatch(text):
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS and int(text) < 2**63):
        return None
    return int(text)


def parse_offset(request: web.Request, *, is_required: bool) -> str | int:
    """Parse the query's offset: a number, `START` or `NOW`. Raises `Problem` (400)."""
    given = request.query.getall("offset", [])
    if len(given) > 1:
        raise Problem(400, 400, "offset: is given more than once")
    if not given:
        if is_required:
            raise Problem(400, 400, "offset: required with live")
        return START
    text = given[0]
    if text in (START, NOW):
        return text
    offset = parse_token(text)
    if offset is None:
        raise Problem(400, 400, "offset: expected an offset that a server returned, -1 or now")
    return offset


def whole_number(text: str, header: str) -> int:
    """Parse a header's number: digits without leading zeros. Raises `Problem` (400)."""
    if not _NUMBER.fullmatch(text):
        raise Problem(400, 400, f"{header}: expected a whole number without leading zeros")
    return int(text)


def _unknown(name: str) -> Problem:
    return Problem(404, 404, f"no stream {name[:249]}")
