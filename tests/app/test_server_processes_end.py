"""The end of `bearlake up` with further server processes that do not end when they are asked to."""

import asyncio
from typing import Any, cast

import pytest

from bearlake.app import processes
from bearlake.app.stop import Stop


class Stubborn:
    """A server process that has been asked to end."""

    is_asked = False

    def terminate(self) -> None:
        """Take note."""
        self.is_asked = True


async def test_server_processes_are_waited_for_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    children = [Stubborn() for _ in range(3)]
    all_wait = asyncio.Barrier(len(children))

    async def ended(name: str, process: Stubborn) -> None:
        assert all(child.is_asked for child in children)
        await all_wait.wait()

    monkeypatch.setattr(processes, "ended", ended)
    async with asyncio.timeout(10):
        async with processes.ServerProcesses(Stop()) as servers:
            for number, child in enumerate(children):
                servers._processes[f"server {number}"] = cast("Any", child)  # noqa: SLF001 - `start` needs stores
