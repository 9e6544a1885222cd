"""Server-sent events of a stream: `data` with values, then `control` with the next offset, for up to one minute.

    event: data                          event: control
    data:[{"a":1},{"a":2}]               data:{"streamNextOffset":"00000000000000000007","streamCursor":"…","upToDate":true}
    id: 00000000000000000007             id: 00000000000000000007

The `id` is the offset to continue from, so that browsers resume with `Last-Event-ID`. Text values are sent as lines, JSON values as a
list, other values as base64. The server stops reading while a client has `unsent_bytes_max` unread bytes.
Source: Durable Streams Protocol 1.0, section 5.7; WHATWG HTML, server-sent events.
"""

import asyncio
import base64
import json

from aiohttp import web

from bearlake.errors import Denied
from bearlake.metadata.quotas import QuotaKey
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.settings import RestSettings
from bearlake.protocols.rest.tailing import state
from bearlake.protocols.rest.tailing.follow import Follower
from bearlake.protocols.rest.tailing.state import Tails
from bearlake.serving.http.login import principal_of
from bearlake.streams.quotas.control import QuotaControl

_PIECE_LENGTH = 256 * 1024
_AT_ONCE_BYTES = 512 * 1024
"""Larger values are encoded in a thread."""
_HEARTBEAT = b": still here\n\n"


async def follow(
    request: web.Request,
    follower: Follower,
    tails: Tails,
    settings: RestSettings,
    draining: asyncio.Event,
    quotas: QuotaControl,
) -> web.StreamResponse:
    """Send events until the stream is closed, the time has passed, the server drains, or the client disconnects.

    While the client owes bytes of its quota, it gets none.
    """
    who = principal_of(request)
    is_binary = not follower.is_json and not state.media_type(follower.content_type).startswith("text/")
    headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
    if is_binary:
        headers["Stream-SSE-Data-Encoding"] = "base64"
    response = web.StreamResponse(headers=headers)
    response.force_close()
    await response.prepare(request)
    loop = asyncio.get_running_loop()
    until, quiet_since = loop.time() + settings.sse_ms / 1000, loop.time()
    is_first = True
    try:
        values = await follower.next(0, settings.unsent_bytes_max)
        while True:
            octets = b""
            if values:
                if sum(map(len, values)) <= _AT_ONCE_BYTES:
                    octets = _data(follower, values, is_binary)
                else:
                    octets = await follower.off_loop(_data, follower, values, is_binary)
            if values or is_first or follower.is_at_end_of_closed:
                octets += _control(follower, tails.cursor(request.query.get("cursor")))
                quiet_since = loop.time()
            elif (loop.time() - quiet_since) * 1000 >= settings.sse_heartbeat_ms:
                octets, quiet_since = _HEARTBEAT, loop.time()
            if octets:
                async with asyncio.timeout(settings.write_timeout_ms / 1000):
                    await response.write(octets)
                quotas.charge(who, QuotaKey.CONSUMER_BYTE_RATE, len(octets))
                await quotas.pace(who, QuotaKey.CONSUMER_BYTE_RATE)
            is_first = False
            left_ms = int((until - loop.time()) * 1000)
            if follower.is_at_end_of_closed or left_ms <= 0 or draining.is_set():
                break
            values = await follower.next(left_ms, settings.unsent_bytes_max)
    except (Problem, Denied):
        return response  # the stream was deleted, or the right revoked: the client reconnects and gets the error
    except TimeoutError:  # the client does not read: discard its unsent data
        if request.transport is not None:
            request.transport.abort()
        return response
    await response.write_eof()
    return response


def _data(follower: Follower, values: list[bytes], is_binary: bool) -> bytes:
    joined = follower.joined(values)
    text = base64.b64encode(joined).decode() if is_binary else joined.decode(errors="replace")
    return b"".join((b"event: data\n", _lines(text), f"id: {state.token(follower.offset)}\n\n".encode()))


def _lines(text: str) -> bytes:
    """Return the text as lines of data, piece by piece: a text may have millions of lines."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    pieces: list[bytes] = []
    start = 0
    while True:
        cut = text.find("\n", start + _PIECE_LENGTH)
        piece = text[start:] if cut < 0 else text[start:cut]
        # A reader removes one leading space, so a line that begins with a space gets another.
        prefix = "data: " if piece.startswith(" ") else "data:"
        pieces.append((prefix + piece.replace("\n ", "\n  ").replace("\n", "\ndata:") + "\n").encode())
        if cut < 0:
            return b"".join(pieces)
        start = cut + 1


def _control(follower: Follower, cursor: str) -> bytes:
    fields: dict[str, object] = {"streamNextOffset": state.token(follower.offset)}
    if follower.is_at_end_of_closed:
        fields["streamClosed"] = True
    else:
        fields["streamCursor"] = cursor
    if follower.is_up_to_date:
        fields["upToDate"] = True
    text = json.dumps(fields, separators=(",", ":"))
    return f"event: control\ndata:{text}\nid: {state.token(follower.offset)}\n\n".encode()
