"""The Iceberg REST catalog with PyIceberg as another engine: reads, tables of its own, rights, versions, errors."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bearlake.protocols.rest.iceberg.rights import NEEDED
from bearlake.streams.access.rights import CREATE_STREAM, DESCRIBE_STREAM, READ_STREAM
from bearlake.streams.principal import Authorizer, Operation, Principal, Resource
from fixtures.catalog_server import CatalogNode, catalog_server
from fixtures.rights import EVERY, OnlyRights
from fixtures.tables import commit_of

TABLE = "/v1/namespaces/streams/tables/orders"


class Switch(Authorizer):
    """Asks another authorizer, which tests set."""

    def __init__(self) -> None:
        self.now: Authorizer = OnlyRights(EVERY)

    def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
        return self.now.allows(who, operation, kind, name)


@pytest.fixture
def rights() -> Switch:
    """What clients may do."""
    return Switch()


@pytest.fixture
async def server(tmp_path: Path, rights: Switch) -> AsyncIterator[CatalogNode]:
    """A catalog with the stream `orders`, whose table has 10 records."""
    async with catalog_server(tmp_path, rights) as node:
        stream, work = await node.stream("orders")
        await node.tables.commit(stream, commit_of(await work.append(1, 0, 10)), closed_tasks=[])
        yield node


async def test_pyiceberg_reads_a_stream(server: CatalogNode) -> None:
    offsets = await server.client(
        lambda catalog: catalog.load_table("streams.orders").scan(selected_fields=("_offset",)).to_arrow()
    )

    assert offsets.column("_offset").to_pylist() == list(range(10))


async def test_pyiceberg_has_tables_of_its_own_beside_streams(server: CatalogNode) -> None:
    def use(catalog: Any) -> tuple[list[Any], str, int]:
        catalog.create_namespace("lab")
        rows = pa.table({"id": pa.array([1, 2], pa.int64())})
        table = catalog.create_table("lab.mine", rows.schema)
        table.append(rows)
        catalog.rename_table("lab.mine", "lab.ours")
        found = catalog.load_table("lab.ours")
        names = catalog.list_tables("lab")
        catalog.drop_table("lab.ours")
        catalog.drop_namespace("lab")
        return names, found.metadata.location, found.scan().to_arrow().num_rows

    names, location, count = await server.client(use)

    assert names == [("lab", "ours")]
    assert location.startswith(f"{server.store_url}/lake/default/lab.mine-")
    assert count == 2


async def test_a_client_that_has_the_current_version_gets_304_until_the_table_changes(server: CatalogNode) -> None:
    first = await server.ask("GET", TABLE)
    tag = first.headers["ETag"]
    again = await server.ask("GET", TABLE, headers={"If-None-Match": tag})
    refs = await server.ask("GET", f"{TABLE}?snapshots=refs", headers={"If-None-Match": tag})
    change = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"comment": "x"}}]}
    changed = await server.ask("POST", TABLE, change)
    later = await server.ask("GET", TABLE, headers={"If-None-Match": tag})

    assert (first.status, again.status, refs.status, changed.status, later.status) == (200, 304, 200, 200, 200)
    assert again.body is None
    assert changed.headers["ETag"] != tag == again.headers["ETag"]
    assert later.body["metadata"]["properties"]["comment"] == "x"


async def test_snapshots_of_branches_and_tags_only(server: CatalogNode) -> None:
    stream = await server.streams.find("orders")
    await server.tables.fence(stream.stream)

    everything, refs = await server.ask("GET", TABLE), await server.ask("GET", f"{TABLE}?snapshots=refs")

    current = everything.body["metadata"]["current-snapshot-id"]
    assert len(everything.body["metadata"]["snapshots"]) == 2
    assert [snapshot["snapshot-id"] for snapshot in refs.body["metadata"]["snapshots"]] == [current]


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/v1/namespaces/none", 404, "NoSuchNamespaceException"),
        ("GET", "/v1/namespaces/none/tables", 404, "NoSuchNamespaceException"),
        ("GET", "/v1/namespaces/streams/tables/none", 404, "NoSuchTableException"),
        ("DELETE", "/v1/namespaces/streams", 409, "NamespaceNotEmptyException"),
        ("GET", "/v1/namespaces/streams/views", 406, "UnsupportedOperationException"),
        ("POST", "/v1/transactions/commit", 406, "UnsupportedOperationException"),
        ("GET", "/v1/config?warehouse=other", 404, "NotFoundException"),
        ("GET", f"{TABLE}?snapshots=some", 400, "BadRequestException"),
    ],
)
async def test_errors_are_those_of_the_specification(
    server: CatalogNode, method: str, path: str, status: int, kind: str
) -> None:
    answer = await server.ask(method, path, {} if method == "POST" else None)

    assert (answer.status, answer.error) == (status, kind)
    assert answer.body["error"]["code"] == status


@pytest.mark.parametrize("body", [[], {}, {"updates": {}, "requirements": []}, {"updates": [{}], "requirements": []}])
async def test_a_malformed_commit_is_refused(server: CatalogNode, body: Any) -> None:
    answer = await server.ask("POST", TABLE, body)

    assert (answer.status, answer.error) == (400, "BadRequestException")


async def test_a_requirement_that_does_not_hold_is_a_conflict(server: CatalogNode) -> None:
    requirement = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1}

    answer = await server.ask("POST", TABLE, {"requirements": [requirement], "updates": []})

    assert (answer.status, answer.error) == (409, "CommitFailedException")


async def test_permits_of_creations_are_neither_shown_nor_changed(server: CatalogNode) -> None:
    name = "bearlake.creation.00000000-0000-0000-0000-000000000000"

    def permit() -> None:
        server.tables.lookup().catalog.update_namespace_properties("streams", updates={name: "permit"})

    await server.tables.run("permit", permit)

    shown = await server.ask("GET", "/v1/namespaces/streams")
    removed = await server.ask("POST", "/v1/namespaces/streams/properties", {"removals": [name]})

    assert name not in shown.body["properties"]
    assert (removed.status, removed.error) == (403, "ForbiddenException")


@pytest.mark.parametrize("folder", ["table/streams/x-00000000", "wal", "lake/../table/x", ""])
async def test_a_table_of_another_engine_cannot_lie_in_our_folders(server: CatalogNode, folder: str) -> None:
    schema = {"type": "struct", "schema-id": 0, "fields": []}
    body = {"name": "x", "schema": schema, "location": f"{server.store_url}/{folder}"}

    created = await server.ask("POST", "/v1/namespaces/streams/tables", body)
    outside = await server.ask("POST", "/v1/namespaces/streams/tables", {**body, "location": "file:///etc"})

    assert (created.status, created.error) == (403, "ForbiddenException")
    assert (outside.status, outside.error) == (403, "ForbiddenException")


async def test_a_stream_s_metadata_cannot_be_registered_under_a_second_name(server: CatalogNode) -> None:
    loaded = await server.ask("GET", TABLE)
    body = {"name": "copy", "metadata-location": loaded.body["metadata-location"]}

    answer = await server.ask("POST", "/v1/namespaces/streams/register", body)

    assert (answer.status, answer.error) == (403, "ForbiddenException")


async def test_a_table_that_a_client_may_not_see_seems_not_to_exist(server: CatalogNode, rights: Switch) -> None:
    rights.now = OnlyRights([])

    loaded = await server.ask("GET", TABLE)
    listed = await server.ask("GET", "/v1/namespaces/streams/tables")
    dropped = await server.ask("DELETE", TABLE)

    assert (loaded.status, dropped.status) == (404, 404)
    assert loaded.error == "NoSuchTableException"
    assert listed.body == {"identifiers": []}


async def test_a_client_that_may_only_describe_sees_the_name_and_not_the_table(
    server: CatalogNode, rights: Switch
) -> None:
    rights.now = OnlyRights(DESCRIBE_STREAM)

    loaded, exists = await server.ask("GET", TABLE), await server.ask("HEAD", TABLE)
    tagged = await server.ask("GET", TABLE, headers={"If-None-Match": "*"})
    listed = await server.ask("GET", "/v1/namespaces/streams/tables")

    assert (loaded.status, exists.status, tagged.status) == (403, 204, 403)
    assert listed.body == {"identifiers": [{"namespace": ["streams"], "name": "orders"}]}


async def test_who_may_read_the_stream_may_read_the_table_and_change_nothing(
    server: CatalogNode, rights: Switch
) -> None:
    rights.now = OnlyRights([*DESCRIBE_STREAM, *READ_STREAM])
    properties = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
    snapshots = {"requirements": [], "updates": [{"action": "remove-snapshot-ref", "ref-name": "b"}]}
    new = {"name": "new", "schema": {"type": "struct", "schema-id": 0, "fields": []}}

    assert (await server.ask("GET", TABLE)).status == 200
    for method, path, body in (
        ("POST", TABLE, properties),
        ("POST", TABLE, snapshots),
        ("DELETE", TABLE, None),
        ("POST", "/v1/namespaces/streams/tables", new),
        ("POST", "/v1/namespaces", {"namespace": ["lab"]}),
        ("DELETE", "/v1/namespaces/streams", None),
    ):
        answer = await server.ask(method, path, body)
        assert (answer.status, answer.error) == (403, "ForbiddenException"), (method, path)


async def test_rights_follow_the_stream_and_not_the_name_of_its_table(server: CatalogNode, rights: Switch) -> None:
    body = {
        "source": {"namespace": ["streams"], "name": "orders"},
        "destination": {"namespace": ["streams"], "name": "renamed"},
    }
    renamed = await server.ask("POST", "/v1/tables/rename", body)

    class OnOrders(Authorizer):
        def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
            return kind is Resource.STREAM and name == "orders"

    rights.now = OnOrders()
    loaded = await server.ask("GET", "/v1/namespaces/streams/tables/renamed")
    old = await server.ask("GET", TABLE)

    assert (renamed.status, loaded.status, old.status) == (204, 200, 404)


async def test_a_list_shows_a_renamed_table_by_its_stream_and_a_foreign_one_by_its_name(
    server: CatalogNode, rights: Switch
) -> None:
    """A renamed table keeps its stream, and another table that takes the name of the first one does not get it."""
    body = {
        "source": {"namespace": ["streams"], "name": "orders"},
        "destination": {"namespace": ["streams"], "name": "renamed"},
    }
    new = {"name": "orders", "schema": {"type": "struct", "schema-id": 0, "fields": []}}
    moved = await server.ask("POST", "/v1/tables/rename", body)
    created = await server.ask("POST", "/v1/namespaces/streams/tables", new)

    async def listed_by(topic: str) -> list[str]:
        class OnTopic(Authorizer):
            def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
                return kind is Resource.STREAM and name == topic

        rights.now = OnTopic()
        answer = await server.ask("GET", "/v1/namespaces/streams/tables")
        return [found["name"] for found in answer.body["identifiers"]]

    assert (moved.status, created.status) == (204, 200)
    assert await listed_by("orders") == ["renamed"]
    assert await listed_by("streams.orders") == ["orders"]
    assert await listed_by("streams.renamed") == []


async def test_creation_needs_the_right_to_create_a_topic(server: CatalogNode, rights: Switch) -> None:
    rights.now = OnlyRights([*DESCRIBE_STREAM, *CREATE_STREAM])
    body = {"name": "new", "schema": {"type": "struct", "schema-id": 0, "fields": []}}

    answer = await server.ask("POST", "/v1/namespaces/streams/tables", body)

    assert answer.status == 200


async def test_every_route_is_described_with_its_rights(server: CatalogNode) -> None:
    described = await server.ask("GET", "/openapi.json")

    routes = {(method.upper(), path) for path, item in described.body["paths"].items() for method in item}
    assert routes == set(NEEDED)
