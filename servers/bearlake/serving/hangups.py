"""Whether a client has given up: it has closed its connection, although its request may still wait unread in front of that.

A process that was suspended reads requests that their clients gave up long ago; the clients may have sent other requests since. A
request by name (delete this topic) would then affect a topic that was created later. The kernel knows that the connection is closed
before the server has read all bytes. A server asks before it executes a request whose client always waits for the answer.

The kernel also knows when a client reads nothing, and ends its connection (`limit_unread_time`), also while the connection closes and the
event loop only waits until the last bytes are sent.
"""

import select
import socket
from typing import Any

_CLOSED = getattr(select, "POLLRDHUP", 0)  # Linux only; elsewhere only a reset connection is noticed
_USER_TIMEOUT = getattr(socket, "TCP_USER_TIMEOUT", 0)  # Linux only; elsewhere there is no limit


def has_hung_up(descriptor: int) -> bool:
    """Return whether the other end of this socket has closed or reset the connection; True if `descriptor` is -1, a closed socket."""
    if descriptor < 0:
        return True
    poll = select.poll()
    poll.register(descriptor, _CLOSED)  # POLLERR, POLLHUP and POLLNVAL are always included
    return bool(poll.poll(0))


def limit_unread_time(sock: Any, time_ms: int) -> None:  # Any: of uvloop it is a socket in all but type
    """Let the kernel end a TCP connection whose client takes nothing of the bytes that wait for it, for `time_ms` (RFC 5482)."""
    if _USER_TIMEOUT and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, _USER_TIMEOUT, min(time_ms, 2**31 - 1))  # a C int
