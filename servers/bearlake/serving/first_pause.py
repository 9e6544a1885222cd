"""Connections that are not read from the beginning, because their address has made too many.

uvloop begins to read a connection after `connection_made`, also if that has paused it; so does asyncio's loop before Python 3.11.4. Such a
connection is paused again in the next turn of the event loop. It may have received something by then, which its protocol holds.
"""

import asyncio


def pause_again(transport: asyncio.Transport) -> None:
    """Pause a transport that may read although it was paused. No-op while it closes."""
    if not transport.is_closing():
        transport.resume_reading()  # asyncio's would take it for paused
        transport.pause_reading()
