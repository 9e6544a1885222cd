"""Where the catalog has its tables: foreign roots, PostgreSQL, and another REST catalog, which it does not pass on."""

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import BadRequestError, ForbiddenError

from bearlake.errors import Invalid
from bearlake.table.warehouse.roots import check_roots
from fixtures.catalog_server import catalog_server
from fixtures.tables import commit_of, rows

ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})


def make_at(location: str) -> Any:
    """Create a table there with two rows, and return the number of rows that a scan finds."""

    def use(catalog: RestCatalog) -> int:
        table = catalog.create_table("streams.mine", ROWS.schema, location=location)
        table.append(ROWS)
        return int(catalog.load_table("streams.mine").scan().to_arrow().num_rows)

    return use


async def test_a_table_of_another_engine_may_lie_in_a_foreign_root_and_be_registered_there(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    async with catalog_server(tmp_path, foreign_root=foreign) as server:
        await server.stream("orders")
        count = await server.client(make_at(f"file:{foreign}/mine"))
        loaded = await server.ask("GET", "/v1/namespaces/streams/tables/mine")
        body = {"name": "again", "metadata-location": loaded.body["metadata-location"]}
        early = await server.ask("POST", "/v1/namespaces/streams/register", body)
        await server.ask("DELETE", "/v1/namespaces/streams/tables/mine")
        registered = await server.ask("POST", "/v1/namespaces/streams/register", body)
        listed = await server.ask("GET", "/v1/namespaces/streams/tables")

    assert count == 2
    assert loaded.body["metadata-location"].startswith(f"file:{foreign}/mine/metadata/")
    assert (early.status, registered.status) == (403, 200), "one table has one name"
    assert [found["name"] for found in listed.body["identifiers"]] == ["again", "orders"]


async def test_a_table_cannot_lie_in_the_folder_of_another_one_or_around_it(tmp_path: Path) -> None:
    """Who may create one table would read and write the metadata of another one, by its place, with the rights to the first."""
    async with catalog_server(tmp_path) as server:
        await server.client(lambda catalog: (catalog.create_namespace("a"), catalog.create_namespace("b")))
        body = {"name": "theirs", "schema": {"type": "struct", "schema-id": 0, "fields": []}}
        theirs = (await server.ask("POST", "/v1/namespaces/a/tables", body)).body
        place, metadata = theirs["metadata"]["location"], theirs["metadata-location"]
        answers = [await server.ask("POST", "/v1/namespaces/b/register", {"name": "x", "metadata-location": metadata})]
        for location in (place, f"{place}/inner", place.rpartition("/")[0], f"file:{place.removeprefix('file://')}"):
            asked = {**body, "name": "x", "location": location}
            answers.append(await server.ask("POST", "/v1/namespaces/b/tables", asked))
            answers.append(await server.ask("POST", "/v1/namespaces/b/tables", {**asked, "stage-create": True}))
        mine = await server.ask("POST", "/v1/namespaces/b/tables", {**body, "name": "mine"})
        move = {"requirements": [], "updates": [{"action": "set-location", "location": place}]}
        answers.append(await server.ask("POST", "/v1/namespaces/b/tables/mine", move))
        new = {"requirements": [{"type": "assert-create"}], "updates": move["updates"]}
        answers.append(await server.ask("POST", "/v1/namespaces/b/tables/x", new))

        assert [(answer.status, answer.error) for answer in answers] == [(403, "ForbiddenException")] * len(answers)
        stay = {
            "requirements": [],
            "updates": [{"action": "set-location", "location": mine.body["metadata"]["location"]}],
        }
        assert (await server.ask("POST", "/v1/namespaces/b/tables/mine", stay)).status == 200


async def test_a_metadata_file_that_its_engine_replaces_by_a_larger_one_is_not_read(tmp_path: Path) -> None:
    """Engines write to the object store themselves: 1 GiB, or a little that expands to it, would be read by each load."""
    async with catalog_server(tmp_path, limits={"metadata_bytes_max": 20_000}) as server:
        await server.client(lambda catalog: catalog.create_namespace("a"))
        body = {"name": "t", "schema": {"type": "struct", "schema-id": 0, "fields": []}}
        found = (await server.ask("POST", "/v1/namespaces/a/tables", body)).body
        text = json.dumps(found["metadata"]).encode()
        key = "lake/other/metadata/1.gz.metadata.json"
        place = f"{server.store_url}/{key}"
        moved = text.replace(found["metadata"]["location"].encode(), f"{server.store_url}/lake/other".encode())
        await server.store.put(key, [gzip.compress(moved)])
        asked = {"name": "u", "metadata-location": place}
        registered = await server.ask("POST", "/v1/namespaces/a/register", asked)
        bombs = [gzip.compress(b" " * 10_000) + gzip.compress(b" " * 1_000_000 + moved), b" " * 30_000]
        loads = []
        for bomb in bombs:
            await asyncio.to_thread(server.tables.bridge.delete, [key])
            await server.store.put(key, [bomb])
            loads.append(await server.ask("GET", "/v1/namespaces/a/tables/u"))
            loads.append(await server.ask("HEAD", "/v1/namespaces/a/tables/u"))

    assert registered.status == 200, registered
    assert [answer.status for answer in loads] == [404] * 4


@pytest.mark.parametrize("place", ["{folder}/elsewhere", "{folder}/foreign-2/mine", "{folder}/foreign/../elsewhere"])
async def test_a_table_outside_of_the_foreign_roots_is_refused(tmp_path: Path, place: str) -> None:
    async with catalog_server(tmp_path, foreign_root=tmp_path / "foreign") as server:
        await server.stream("orders")
        with pytest.raises((ForbiddenError, BadRequestError)):
            await server.client(make_at(f"file:{place.format(folder=tmp_path)}"))


async def test_without_foreign_roots_no_table_lies_outside_of_the_object_store(tmp_path: Path) -> None:
    async with catalog_server(tmp_path) as server:
        await server.stream("orders")
        with pytest.raises(ForbiddenError):
            await server.client(make_at(f"file:{tmp_path}/foreign/mine"))


async def test_a_file_in_a_foreign_root_cannot_become_part_of_a_streams_table(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    async with catalog_server(tmp_path, foreign_root=foreign) as server:
        stream, work = await server.stream("orders")
        await server.tables.commit(stream, commit_of(await work.append(1, 0, 5)), closed_tasks=[])

        def take(catalog: RestCatalog) -> None:
            mine = catalog.create_table("streams.mine", rows(0, 0, 5).schema, location=f"file:{foreign}/mine")
            mine.append(rows(0, 0, 5))
            taken = next(iter(mine.scan().plan_files())).file
            with catalog.load_table("streams.orders").transaction() as transaction:
                transaction.delete("_offset < 5")
                with transaction.update_snapshot().fast_append() as append:
                    append.append_data_file(taken)

        with pytest.raises(ForbiddenError, match="does not lie in the folder"):
            await server.client(take)


@pytest.mark.parametrize(
    ("root", "store"),
    [
        ("file:///data", "file:///data/objects"),
        ("file:///data/objects/more", "file:///data/objects"),
        ("file:/data/objects", "file:///data/objects"),
        ("s3a://bucket", "s3://bucket/prefix"),
    ],
)
def test_a_foreign_root_that_overlaps_the_object_store_is_refused(root: str, store: str) -> None:
    with pytest.raises(Invalid, match=r"catalog\.warehouse\.foreign_roots"):
        check_roots([root], store)


def test_a_foreign_root_beside_the_object_store_is_allowed() -> None:
    check_roots(["file:///data/objects-2", "s3://other/prefix"], "file:///data/objects", "s3://bucket/prefix")


async def test_tables_in_postgresql_are_served_and_guarded_like_those_in_sqlite(
    tmp_path: Path, postgresql_url: str
) -> None:
    async with catalog_server(tmp_path, catalog_url=postgresql_url) as server:
        stream, work = await server.stream("orders")
        await server.tables.commit(stream, commit_of(await work.append(1, 0, 5)), closed_tasks=[])
        count = await server.client(make_at(f"{server.store_url}/lake/mine"))

        def use(catalog: RestCatalog) -> list[int]:
            catalog.load_table("streams.orders").delete("_offset < 2")
            catalog.rename_table("streams.mine", "streams.ours")
            found = catalog.load_table("streams.orders").scan(selected_fields=("_offset",)).to_arrow()
            return sorted(found.column("_offset").to_pylist())

        offsets = await server.client(use)
        with pytest.raises(ForbiddenError, match="producers"):
            await server.client(lambda catalog: catalog.load_table("streams.orders").append(rows(0, 7, 8)))
        listed = await server.ask("GET", "/v1/namespaces/streams/tables")

    assert (count, offsets) == (2, [2, 3, 4])
    assert [found["name"] for found in listed.body["identifiers"]] == ["orders", "ours"]


async def test_tables_in_another_rest_catalog_are_not_served(tmp_path: Path) -> None:
    """Engines use that catalog itself; the guard would not see what they change there."""
    (tmp_path / "first").mkdir()
    async with (
        catalog_server(tmp_path / "first") as first,
        catalog_server(tmp_path / "second", catalog_url=first.url) as second,
    ):
        await first.stream("orders")
        answers = [
            await second.ask("GET", "/v1/namespaces"),
            await second.ask("GET", "/v1/namespaces/streams/tables/orders"),
            await second.ask("POST", "/v1/namespaces", {"namespace": ["lab"]}),
        ]
        config = await second.ask("GET", "/v1/config")

    assert config.status == 200
    assert {answer.status for answer in answers} == {403}, json.dumps([answer.body for answer in answers])
    assert all("use that one" in answer.body["error"]["message"] for answer in answers)
