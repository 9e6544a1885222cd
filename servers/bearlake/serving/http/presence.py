"""Work that is only for a client that waits for it: it ends when the client closes its connection.

aiohttp lets a handler run to its end although its client has gone, which changes need: a commit is either made or not. A handler that
only reads, and for long, stops with its client instead.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from bearlake.serving.http.handlers import GatedHandler


@contextmanager
def ended_with_client(request: web.Request) -> Iterator[None]:
    """Cancel the block, which must be in the handler's task, when the client closes its connection; then raise `ConnectionResetError`.

    A connection that another server than ours has accepted does not cancel the block.
    """
    protocol, task = request.protocol, asyncio.current_task()
    if not isinstance(protocol, GatedHandler) or task is None:
        yield
        return
    is_lost, old_request_count = False, task.cancelling()

    def lose() -> None:
        nonlocal is_lost
        is_lost = True
        task.cancel()

    if not protocol.tell_when_lost(lose):
        raise ConnectionResetError("the client has gone")
    try:
        yield
    except asyncio.CancelledError:
        if is_lost and task.uncancel() <= old_request_count:
            raise ConnectionResetError("the client has gone") from None
        raise
    finally:
        protocol.tell_when_lost(None)
