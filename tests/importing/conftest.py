"""Real Kafkas come from `bench/`, outside of any package: put the repository's root on the import path."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


@pytest.fixture
async def aiohttp_site() -> AsyncIterator[Callable[[Any], Awaitable[str]]]:
    """`await aiohttp_site(handler)`: a server whose answers to all GET requests the handler gives; returns its URL."""
    runners: list[web.AppRunner] = []

    async def start(handler: Any) -> str:
        app = web.Application()
        app.router.add_get("/{tail:.*}", handler)
        runner = web.AppRunner(app)
        runners.append(runner)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        return f"http://127.0.0.1:{port}"

    yield start
    for runner in runners:
        await runner.cleanup()
