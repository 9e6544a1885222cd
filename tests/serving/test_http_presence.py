"""Work that ends with its client."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest
from aiohttp import web
from typing_extensions import override

from bearlake.serving.http.handlers import GatedHandler
from bearlake.serving.http.presence import ended_with_client


class _Connection(GatedHandler):
    """A connection without a transport."""

    def __init__(self) -> None:
        self.lose: Callable[[], object] | None = None

    @override
    def tell_when_lost(self, call: Callable[[], object] | None) -> bool:
        self.lose = call
        return True


@pytest.mark.parametrize("old_request_count", [0, 1])
async def test_work_ends_with_its_client_also_in_a_task_with_older_cancellations(old_request_count: int) -> None:
    connection = _Connection()
    request = cast("web.Request", SimpleNamespace(protocol=connection))
    task = asyncio.current_task()
    assert task is not None

    async def work() -> None:
        with ended_with_client(request):
            assert connection.lose is not None
            connection.lose()
            await asyncio.Event().wait()

    for _ in range(old_request_count):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(0)
    with pytest.raises(ConnectionResetError):
        await work()

    assert task.cancelling() == old_request_count
    assert connection.lose is None
    for _ in range(old_request_count):
        task.uncancel()
