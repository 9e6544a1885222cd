"""Several workers at one table, in local stores, at a clock that tests set; and both kernels for what checks values."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import ModuleType

import pytest

from bearlake import kernel as installed_kernel
from bearlake.clock import ManualClock, SystemClock
from bearlake.kernel import fallback
from bearlake.objects import ObjectStore
from bearlake.table.iceberg import IcebergTables, open_tables
from fixtures.tables import Work, a_stream, local_store, sqlite_settings


@pytest.fixture(params=["installed", "fallback"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The kernel that is installed here, and the one in Python: by which of them values are checked."""
    chosen: ModuleType = installed_kernel if request.param == "installed" else fallback
    for name in ("check_protobuf", "decode_avro"):
        monkeypatch.setattr(installed_kernel, name, getattr(chosen, name))
    return chosen


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[tuple[ObjectStore, str]]:
    """The object store and its URL."""
    opened, url = local_store(tmp_path)
    yield opened, url
    await opened.close()


@pytest.fixture
def clock() -> ManualClock:
    """The clock of all workers."""
    return ManualClock(SystemClock().now_ms())


@pytest.fixture
async def open_more(
    tmp_path: Path, store: tuple[ObjectStore, str], clock: ManualClock
) -> AsyncIterator[Callable[[], IcebergTables]]:
    """Opens the tables of another worker."""
    opened: list[IcebergTables] = []

    def more() -> IcebergTables:
        opened.append(open_tables(sqlite_settings(tmp_path, metadata_versions_max=1), *store, clock=clock))
        return opened[-1]

    yield more
    for tables in opened:
        await tables.close()


@pytest.fixture
async def tables(open_more: Callable[[], IcebergTables]) -> IcebergTables:
    """Those of the first worker."""
    return open_more()


@pytest.fixture
async def rival(open_more: Callable[[], IcebergTables]) -> IcebergTables:
    """Those of another worker."""
    return open_more()


@pytest.fixture
async def work(store: tuple[ObjectStore, str], tables: IcebergTables) -> Work:
    """A stream with a table."""
    stream = a_stream()
    await tables.ensure(stream)
    return Work(store[0], stream)
