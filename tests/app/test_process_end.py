"""The end of a server process: it takes a limited time, whatever hangs."""

import asyncio
import gc
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from typing_extensions import override

from bearlake import owned_tasks
from bearlake.app.process import run_process
from bearlake.app.role import OpenListener, Parts, Plan, Role
from bearlake.app.stop import Stop
from bearlake.owned_tasks import EXIT_CODE, Tasks
from bearlake.settings.document import Settings, load_document


class HangsAtTheEnd(Role):
    """A role with a part that is not closed before `released` is set, like a store on a disk that hangs."""

    def __init__(self) -> None:
        self.released = asyncio.Event()

    @override
    def bind(self, settings: Settings, open_listener: OpenListener) -> Mapping[str, str]:
        return {}

    @override
    def build(self, parts: Parts) -> None:
        parts.closing.push_async_callback(self.released.wait)

    @override
    async def start(self, tasks: Tasks) -> Mapping[str, str]:
        return {}

    @override
    async def drain(self, deadline_ms: int) -> None:
        """There is nothing to finish."""


@pytest.fixture
def collector() -> Iterator[None]:
    """A started process sets up the garbage collector; this takes it back."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("collector")
async def test_a_part_that_is_never_closed_ends_the_process_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    role, codes = HangsAtTheEnd(), list[int]()

    def end(code: int) -> None:
        if caplog.records[-1].unended == ["stores or services"]:  # type: ignore[attr-defined]  # not tasks, on a slow machine
            codes.append(code)
            role.released.set()  # in a test, the process goes on

    async def serve(_: Mapping[str, str]) -> None:
        """Stops at once."""

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(owned_tasks, "END_S", 0.0)
    options = {
        "metadata.url": (f"sqlite://{tmp_path}/m.db", "test"),
        "object_store.url": (f"file://{tmp_path}/objects", "test"),
        "admin.port": (0, "test"),
    }
    plan = Plan(loaded=load_document(None, {}, options), environ={})
    async with asyncio.timeout(60):
        await run_process(plan, Stop(), [role], serve)

    assert codes == [EXIT_CODE]
