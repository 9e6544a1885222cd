"""Whether a client has given up: it has closed its connection, although its request may still wait unread in front of that.

A process that was suspended reads requests that their clients gave up long ago; the clients may have sent other requests since. A
request by name (delete this topic) would then affect a topic that was created later. The kernel knows that the connection is closed
before the server has read all bytes. A server asks before it executes a request whose client always waits for the answer.
"""

import select

_CLOSED = getattr(select, "POLLRDHUP", 0)  # Linux only; elsewhere only a reset connection is noticed


def has_hung_up(descriptor: int) -> bool:
    """Return whether the other end of this socket has closed or reset the connection; True if `descriptor` is -1, a closed socket."""
    if descriptor < 0:
        return True
    poll = select.poll()
    poll.register(descriptor, _CLOSED)  # POLLERR, POLLHUP and POLLNVAL are always included
    return bool(poll.poll(0))
