"""What other engines write into our tables, and what catalogs answer, chooses no code or place of ours, and costs bounded time and memory.

Anybody who may write a table in Spark may set its properties and its location. A catalog may be another team's, or somebody in between.
"""

import asyncio
import gzip
import time
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from pyiceberg.table.locations import SimpleLocationProvider
from pyiceberg.table.update import SetLocationUpdate

from bearlake.errors import BearlakeError, Conflict, Unavailable
from bearlake.objects import ObjectStore
from bearlake.table.iceberg import IcebergTables, open_tables
from bearlake.table.settings import TableSettings
from fixtures.hostile_catalog import Answer, HostileCatalog, hostile_catalog, json_of
from fixtures.tables import Work, a_stream, commit_of, local_store, pyiceberg_catalog, tables_in

CALLS: list[object] = []
PATIENCE_S = 20.0


class Called:
    """The code that a catalog would like us to call."""

    def __init__(self, *arguments: object, **named: object) -> None:
        CALLS.append((arguments, named))


class CalledFiles(PyArrowFileIO):
    """The files that a table would like us to use."""

    def __init__(self, properties: dict[str, str]) -> None:
        CALLS.append(properties)
        super().__init__(properties)


class CalledPlaces(SimpleLocationProvider):
    """The places that a table would like us to use."""

    def __init__(self, location: str, properties: dict[str, str]) -> None:
        CALLS.append(location)
        super().__init__(location, properties)


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[tuple[ObjectStore, str]]:
    opened, url = local_store(tmp_path)
    yield opened, url
    await opened.close()


@pytest.fixture
async def tables(tmp_path: Path, store: tuple[ObjectStore, str]) -> AsyncIterator[IcebergTables]:
    opened = tables_in(tmp_path, *store)
    yield opened
    await opened.close()


@pytest.fixture
def catalog() -> Iterator[HostileCatalog]:
    with hostile_catalog() as running:
        yield running


def theirs(folder: Path, name: str = "streams.orders") -> Table:
    """The table as another engine has it."""
    return pyiceberg_catalog(folder).load_table(name)


async def test_properties_of_a_table_choose_no_code_of_ours(
    tables: IcebergTables, store: tuple[ObjectStore, str], tmp_path: Path
) -> None:
    work = Work(store[0], a_stream())
    await tables.ensure(work.stream)
    with theirs(tmp_path).transaction() as transaction:
        transaction.set_properties(
            {
                "py-io-impl": f"{__name__}.{CalledFiles.__name__}",
                "write.py-location-provider.impl": f"{__name__}.{CalledPlaces.__name__}",
            }
        )
    assert CALLS
    CALLS.clear()

    state = await tables.commit(work.stream, commit_of(await work.append(1, 0, 4)), closed_tasks=[])
    await tables.expire(work.stream, keep_ms=0, keep_count_min=1)

    assert state.ends == {0: 4}
    assert CALLS == []


async def test_a_table_whose_metadata_should_go_elsewhere_keeps_it_in_its_folder(
    tables: IcebergTables, store: tuple[ObjectStore, str], tmp_path: Path
) -> None:
    work = Work(store[0], a_stream())
    await tables.ensure(work.stream)
    with theirs(tmp_path).transaction() as transaction:
        transaction.set_properties({"write.metadata.path": f"{store[1]}/wal"})
    before = [found.key async for found in store[0].list("wal/")]

    state = await tables.commit(work.stream, commit_of(await work.append(1, 0, 4)), closed_tasks=[])

    assert f"/{state.location_key}/metadata/" in state.metadata_location
    assert [found.key async for found in store[0].list("wal/")] == before


async def test_a_table_that_was_moved_into_the_folder_of_another_one_deletes_nothing_there(
    tables: IcebergTables, store: tuple[ObjectStore, str], tmp_path: Path
) -> None:
    """Upkeep deletes the metadata files in a table's folder that the table does not name: here, all of the other table's."""
    victim, mine = Work(store[0], a_stream("victim", 1)), Work(store[0], a_stream("mine", 2))
    for work in (victim, mine):
        await tables.ensure(work.stream)
        for task in range(3):
            change = await work.append(task, task * 4, task * 4 + 4)
            await tables.commit(work.stream, commit_of(change), closed_tasks=[])
    place = (await tables.state(victim.stream)).location_key  # type: ignore[union-attr]
    moved = theirs(tmp_path, "streams.mine")
    moved.catalog.commit_table(moved, (), (SetLocationUpdate(location=f"{store[1]}/{place}"),))
    before = {found.key async for found in store[0].list("table/")}

    eager = tables_in(tmp_path, *store, metadata_grace_ms=-1_000_000)
    with pytest.raises(Conflict, match="does not lie in the folder of its stream"):
        await eager.expire(mine.stream, keep_ms=-1_000_000, keep_count_min=1)
    await eager.close()

    assert before <= {found.key async for found in store[0].list("table/")}
    summary = await tables.summary(victim.stream)
    assert summary is not None
    assert summary.row_count == 12


async def asked(catalog: HostileCatalog, store: tuple[ObjectStore, str], **settings: Any) -> object:
    """What a worker gets when it looks for a table: its state, or the error."""
    named = {"catalog_deadline_ms": 5_000, "commit_attempt_count_max": 1, **settings}
    tables = open_tables(TableSettings(catalog_url=catalog.url, **named), *store)
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await tables.state(a_stream())
    except BearlakeError as error:
        return error
    finally:
        await tables.close()


CODE = f"{__name__}.Called"
OVERRIDES: list[dict[str, Any]] = [
    {"py-io-impl": CODE},
    {"auth": {"type": "custom", "impl": CODE, "custom": {"a": "b"}}},
    {"ssl": {"client": {"cert": "/etc/hostname"}}},
    {"rest.sigv4-enabled": "true"},
    {"header.Host": "elsewhere"},
    {"oauth2-server-uri": "http://127.0.0.2:1/token", "credential": "a:b"},
]


@pytest.mark.parametrize("where", ["overrides", "defaults"])
@pytest.mark.parametrize("properties", OVERRIDES, ids=lambda found: next(iter(found)))
async def test_a_catalogs_configuration_chooses_nothing_of_the_worker(
    catalog: HostileCatalog, store: tuple[ObjectStore, str], properties: dict[str, Any], where: str
) -> None:
    config: dict[str, Any] = {"defaults": {}, "overrides": {}}
    catalog.answer("/v1/config", {**config, where: properties})

    assert await asked(catalog, store) is None  # there is no such table
    assert CALLS == []
    assert catalog.seen[0] == "GET /v1/config"
    assert catalog.seen[1].startswith("GET /v1/namespaces/streams/tables/orders")


async def test_a_catalog_may_set_its_prefix_and_its_path_but_no_other_host(
    catalog: HostileCatalog, store: tuple[ObjectStore, str]
) -> None:
    catalog.answer("/v1/config", {"defaults": {}, "overrides": {"prefix": "main", "uri": f"{catalog.url}/deeper"}})
    assert await asked(catalog, store) is None
    assert catalog.seen[1].startswith("GET /deeper/v1/main/namespaces/streams/tables/")

    catalog.answer("/v1/config", {"defaults": {}, "overrides": {"uri": "http://127.0.0.2:1"}})
    catalog.seen.clear()
    assert await asked(catalog, store) is None
    assert catalog.seen[1].startswith("GET /v1/namespaces/streams/tables/")


def redirect(request: BaseHTTPRequestHandler) -> None:
    request.send_response(307)
    request.send_header("Location", "http://127.0.0.2:1/latest/meta-data")
    request.send_header("Content-Length", "0")
    request.end_headers()


async def test_a_redirect_to_another_host_is_not_followed(
    catalog: HostileCatalog, store: tuple[ObjectStore, str]
) -> None:
    catalog.answers["/v1/config"] = redirect

    found = await asked(catalog, store)

    assert isinstance(found, Unavailable)
    assert "redirects to another host" in str(found)


def dribbled(catalog: HostileCatalog, head: bytes, body: bytes) -> Answer:
    """An answer whose bytes come one by one, each long before any time limit of a single read."""

    def send(request: BaseHTTPRequestHandler) -> None:
        for byte in head + body:
            request.wfile.write(bytes([byte]))
            request.wfile.flush()
            if catalog.ended.wait(0.05):
                return

    return send


@pytest.mark.parametrize("part", ["head", "body"])
async def test_an_answer_that_comes_byte_by_byte_ends_at_the_deadline(
    catalog: HostileCatalog, store: tuple[ObjectStore, str], part: str
) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
    if part == "head":
        head = b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100
    catalog.answers["/v1/config"] = dribbled(catalog, head if part == "head" else b"", b" " * 1000)
    if part == "body":

        def send(request: BaseHTTPRequestHandler) -> None:
            request.wfile.write(head)
            dribbled(catalog, b"", b" " * 1000)(request)

        catalog.answers["/v1/config"] = send
    start = time.monotonic()

    found = await asked(catalog, store, catalog_deadline_ms=500)

    assert isinstance(found, Unavailable)
    assert time.monotonic() - start < PATIENCE_S / 2  # the whole answer takes 30 s and more


@pytest.mark.parametrize("is_compressed", [False, True])
async def test_an_answer_beyond_the_limit_is_not_read(
    catalog: HostileCatalog, store: tuple[ObjectStore, str], is_compressed: bool
) -> None:
    """A few kilobytes may be gigabytes."""
    sent: list[int] = []
    piece = gzip.compress(bytes(50 * 1024 * 1024)) if is_compressed else b" " * 65536

    def send(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        if is_compressed:
            request.send_header("Content-Encoding", "gzip")
        request.send_header("Content-Length", str(len(piece) if is_compressed else 10**12))
        request.end_headers()
        for _ in range(1 if is_compressed else 2_000):
            request.wfile.write(piece)
            sent.append(len(piece))

    catalog.answers["/v1/config"] = send

    found = await asked(catalog, store, catalog_answer_bytes_max=1024 * 1024)

    assert isinstance(found, Unavailable)
    assert "more than 1048576 bytes" in str(found)
    assert sum(sent) < 60 * 1024 * 1024


CONFIGS: list[Any] = [
    b"",
    b"null",
    b"[" * 100_000,
    b"{" + b'"a":{' * 50_000,
    b"\xff\xfe",
    {"defaults": None, "overrides": None},
    {"defaults": {"uri": 5}, "overrides": {"uri": None}},
    {"defaults": {}, "overrides": {"namespace-separator": ""}},
    {"defaults": {}, "overrides": {"prefix": {"a": 1}}},
    {"defaults": {}, "overrides": {}, "endpoints": ["nonsense"]},
    {"defaults": {}, "overrides": {"uri": "http://[::1"}},
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: str(config)[:40])
async def test_a_malformed_configuration_is_an_error_kind_or_no_table(
    catalog: HostileCatalog, store: tuple[ObjectStore, str], config: Any
) -> None:
    catalog.answer("/v1/config", config)

    found = await asked(catalog, store)

    assert found is None or isinstance(found, BearlakeError)


TABLES: list[tuple[int, Any]] = [
    (200, b""),
    (200, b"null"),
    (200, {}),
    (200, b"[" * 100_000),
    (200, {"metadata-location": None, "metadata": {"format-version": 2}}),
    (200, {"metadata-location": "file:///etc/passwd", "metadata": {"format-version": 1e400}}),
    (200, {"metadata-location": 7, "metadata": []}),
    (204, b""),
    (304, b""),
    (401, b"<html>"),
    (418, {"error": "tea"}),
    (429, {"error": {"message": "x" * 100_000, "type": None, "code": "many"}}),
    (500, b"\xff" * 1000),
    (503, {}),
]


@pytest.mark.parametrize(("status", "answer"), TABLES, ids=lambda found: str(found)[:40])
async def test_a_malformed_table_is_an_error_kind(
    catalog: HostileCatalog, store: tuple[ObjectStore, str], status: int, answer: Any
) -> None:
    catalog.answer("/v1/config", {"defaults": {}, "overrides": {}})
    catalog.answers["/v1/namespaces/streams/tables/orders"] = json_of(answer, status)

    found = await asked(catalog, store)

    assert isinstance(found, BearlakeError)
    assert len(str(found)) < 1_000
