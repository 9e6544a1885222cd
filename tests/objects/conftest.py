"""The stores that the conformance suite runs on.

A test asks for `store`. Each kind is used directly and in `retrying(faulty(…))`, where a fifth of the calls fails before the effect and a
fifth of the replies is lost. To add a store: write a fixture that yields one and name it in `KINDS`.
"""

import asyncio
import random
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from typing_extensions import override

from bearlake.objects import ObjectStore
from bearlake.objects.cloud import CloudObjectStore, open_s3
from bearlake.objects.cloud_settings import CloudSettings
from bearlake.objects.faulty import FaultSettings, FaultyObjectStore
from bearlake.objects.local import LocalObjectStore
from bearlake.objects.local_files import FileCalls
from bearlake.objects.memory import MemoryObjectStore
from bearlake.objects.retrying import RetryingObjectStore, RetrySettings
from fixtures.s3 import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, S3Server

KINDS = ["memory_store", "local_store", "local_named_store", "s3_store"]
FAULTS = FaultSettings(error_rate=0.2, lost_reply_rate=0.2, torn_read_rate=0.2)
RETRIES = RetrySettings(attempt_count_max=60, pause_first_ms=0)

T = TypeVar("T")


class NamedFileCalls(FileCalls):
    """A file system without anonymous files, such as NFS."""

    has_anonymous_files = False


@pytest.fixture
async def memory_store() -> AsyncIterator[MemoryObjectStore]:
    """A store in memory."""
    store = MemoryObjectStore()
    yield store
    await store.close()


@pytest.fixture
async def local_store(tmp_path: Path) -> AsyncIterator[LocalObjectStore]:
    """A store in a local folder."""
    store = LocalObjectStore(tmp_path / "objects")
    yield store
    await store.close()


@pytest.fixture
async def local_named_store(tmp_path: Path) -> AsyncIterator[LocalObjectStore]:
    """A store in a local folder, with calls for file systems without unnamed files."""
    store = LocalObjectStore(tmp_path / "objects", calls=NamedFileCalls())
    yield store
    await store.close()


@pytest.fixture
async def s3_store(s3_server: S3Server, s3_bucket: str, s3_credentials: None) -> AsyncIterator[CloudObjectStore]:
    """A store in a bucket of the S3 server."""
    store = open_s3(s3_bucket, "some/prefix", CloudSettings(endpoint=s3_server.endpoint))
    yield store
    await store.close()


@pytest.fixture
def s3_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the S3 server's credentials in the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_ACCESS_KEY)
    monkeypatch.setenv("AWS_REGION", REGION)


@pytest.fixture(params=KINDS, ids=[name.removesuffix("_store") for name in KINDS])
def bare_store(request: pytest.FixtureRequest) -> ObjectStore:
    """Each kind of store in turn, without faults."""
    store: ObjectStore = request.getfixturevalue(request.param)
    return store


@pytest.fixture(params=["bare", "faulty"])
def is_faulty(request: pytest.FixtureRequest) -> bool:
    """Whether faults are injected."""
    return bool(request.param == "faulty")


@pytest.fixture
def store(bare_store: ObjectStore, is_faulty: bool) -> ObjectStore:
    """The store, with injected faults and retries if `is_faulty`."""
    if not is_faulty:
        return bare_store
    faulty = FaultyObjectStore(bare_store, FAULTS, random.Random(7))
    return RetryingObjectStore(faulty, RETRIES, random.Random(8))


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer as soon as nothing else is to do."""

    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__(_JumpingSelector(self))

    @override
    def time(self) -> float:
        return self._now_s

    def jump(self, delta_s: float) -> None:
        """Move the loop's time forward."""
        self._now_s += delta_s


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0 if timeout is not None else 1.0)
        if not ready and timeout:
            self._loop.jump(timeout)
        return ready


@pytest.fixture
def run_virtual() -> Callable[[Coroutine[Any, Any, T]], T]:
    """Runs a coroutine to its end in virtual time, which starts at 0."""

    def run(coroutine: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            return runner.run(coroutine)

    return run
