"""Schemas of a registry: ids, versions, references, deletions and levels are the same here; what clashes is refused."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bearlake.errors import BearlakeError, Corrupt, Denied, Invalid, NotFound, Unavailable
from bearlake.importing.registry import SourceRegistry
from bearlake.importing.schemas import copy_schemas
from bearlake.importing.settings import RegistrySourceSettings
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.schemas.model import Mode
from fixtures.schema_registry import Answer, Registries, RegistryNode

SETTINGS = RegistrySourceSettings()
POINT = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}
LINE = {"type": "record", "name": "Line", "fields": [{"name": "from", "type": "Point"}]}


@pytest.fixture(params=["sqlite", "postgresql"])
async def pair(request: pytest.FixtureRequest, registries: Registries) -> tuple[RegistryNode, RegistryNode]:
    """A source, and a target on each kind of metadata store."""
    url = "memory:///" if request.param == "sqlite" else request.getfixturevalue("postgresql_url")
    (source,), (target,) = await registries(1, "memory:///"), await registries(1, url)
    return source, target


async def get(node: RegistryNode, path: str) -> Answer:
    """What a client reads."""
    answer: Answer = await node.get(path)
    return answer


async def test_schemas_keep_ids_versions_references_and_levels(pair: tuple[RegistryNode, RegistryNode]) -> None:
    source, target = pair
    for number in range(3):
        await source.register("deleted", {**POINT, "name": "Deleted", "doc": str(number)})
    await source.register("point", POINT)
    await source.register("point", {**POINT, "doc": "two"})
    await source.register("line", LINE, references=[{"name": "Point", "subject": "point", "version": 1}])
    await source.register("same", POINT)
    await source.put("/config/point", {"compatibility": "FULL"})
    await source.delete("/subjects/deleted")
    await source.delete("/subjects/point/versions/2")

    copied = await copy_schemas(SourceRegistry(source.url, SETTINGS), target.schemas)
    again = await copy_schemas(SourceRegistry(source.url, SETTINGS), target.schemas)

    assert (copied.registered, copied.present, copied.refused) == (7, 0, {})
    assert (again.registered, again.present, again.refused) == (0, 7, {})
    paths = ["/subjects?deleted=true", "/subjects", "/config/point", "/schemas"]
    paths += [f"/schemas/ids/{number}" for number in range(1, 7)]
    for subject in ("deleted", "point", "line", "same"):
        paths += [f"/subjects/{subject}/versions?deleted=true", f"/subjects/{subject}/versions"]
        paths += [f"/subjects/{subject}/versions/{number}?deleted=true" for number in (1, 2)]
    for path in paths:
        there, here = await get(source, path), await get(target, path)
        assert (here.status, here.body) == (there.status, there.body), path
    assert await target.register("new", {"type": "fixed", "name": "New", "size": 9}) == 7
    assert (await get(target, "/mode/point")).status == 404


async def test_an_id_that_another_schema_has_here_is_refused_and_the_others_are_copied(
    pair: tuple[RegistryNode, RegistryNode],
) -> None:
    source, target = pair
    await source.register("a", POINT)
    await source.register("b", {"type": "fixed", "name": "B", "size": 2})
    await target.register("ours", {"type": "fixed", "name": "Ours", "size": 1})

    copied = await copy_schemas(SourceRegistry(source.url, SETTINGS), target.schemas)

    assert copied.registered == 1
    assert list(copied.refused) == ["a version 1"]
    assert (await get(target, "/schemas/ids/2")).body == (await get(source, "/schemas/ids/2")).body
    assert (await get(target, "/subjects/ours/versions")).body == [1]


async def test_a_version_that_has_another_id_here_is_refused(pair: tuple[RegistryNode, RegistryNode]) -> None:
    source, target = pair
    await source.register("other", POINT)
    await source.register("a", {"type": "fixed", "name": "A", "size": 2})
    await target.register("a", {"type": "fixed", "name": "A", "size": 2})

    copied = await copy_schemas(SourceRegistry(source.url, SETTINGS), target.schemas)

    assert copied.refused["a version 1"] == "it has id 1 here, and 2 at the source"


async def test_a_mode_that_the_subject_had_comes_back(pair: tuple[RegistryNode, RegistryNode]) -> None:
    source, target = pair
    await source.register("a", POINT)
    await target.put("/mode/a", {"mode": "READONLY"})

    copied = await copy_schemas(SourceRegistry(source.url, SETTINGS), target.schemas)

    assert copied.registered == 1
    assert (await get(target, "/mode/a")).body == {"mode": "READONLY"}
    assert [key.name for key in [(await target.schemas.version(ANONYMOUS, "a", 1)).subject]] == ["a"]


async def test_a_copy_that_was_interrupted_leaves_no_subject_in_import_mode(
    pair: tuple[RegistryNode, RegistryNode],
) -> None:
    source, target = pair
    await source.register("a", POINT)
    await copy_schemas(SourceRegistry(source.url, SETTINGS), target.schemas)
    await target.schemas.set_mode(ANONYMOUS, "a", Mode.IMPORT, is_forced=True)

    await copy_schemas(SourceRegistry(source.url, SETTINGS), target.schemas)

    assert (await get(target, "/mode/a")).status == 404


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (404, b"", NotFound),
        (401, b"", Denied),
        (403, b"", Denied),
        (500, b"", Unavailable),
        (302, b"", Unavailable),
        (200, b"<html>", Corrupt),
        (200, b"[" + b" " * 200 + b"]", Corrupt),
    ],
)
async def test_answers_of_a_strange_registry_are_errors_of_known_kinds(
    aiohttp_site: Any, status: int, body: bytes, kind: type[BearlakeError]
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, body=body, headers={"Location": "http://192.0.2.1/"})

    url = await aiohttp_site(answer)

    with pytest.raises(kind):
        await SourceRegistry(url, RegistrySourceSettings(response_bytes_max=100)).get("subjects")


async def test_documents_that_are_no_schemas_are_refused_one_by_one(
    aiohttp_site: Any, pair: tuple[RegistryNode, RegistryNode]
) -> None:
    async def answer(request: web.Request) -> web.Response:
        pages: dict[str, Any] = {
            "/subjects": ["a"],
            "/subjects/a/versions": [1, 2, 3, 4],
            "/subjects/a/versions/1": {"schema": '"int"', "id": "x", "version": 1},
            "/subjects/a/versions/2": {"id": 1},
            "/subjects/a/versions/3": {"schema": '"int"', "id": 1, "version": 3, "schemaType": "COBOL"},
            "/subjects/a/versions/4": {"schema": "{", "id": 2, "version": 4},
        }
        found = pages.get(request.path)
        return web.json_response(found, status=404 if found is None else 200)

    url = await aiohttp_site(answer)

    copied = await copy_schemas(SourceRegistry(url, SETTINGS), pair[1].schemas)

    assert copied.registered == 0
    assert sorted(copied.refused) == [f"a version {number}" for number in (1, 2, 3, 4)]


async def test_the_password_is_sent_and_never_in_the_open(aiohttp_site: Any, tmp_path: Path) -> None:
    seen: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.json_response([])

    (tmp_path / "secret").write_text("secret\n")
    settings = RegistrySourceSettings(user="alice", password_file=str(tmp_path / "secret"))

    assert await SourceRegistry(await aiohttp_site(answer), settings).get("subjects") == []
    assert seen == ["Basic YWxpY2U6c2VjcmV0"]
    with pytest.raises(Denied, match="https"):
        SourceRegistry("http://registry.example:8081", settings)
    SourceRegistry("https://registry.example:8081", settings)
    for url in ("file:///etc/passwd", "registry:8081", "http://user:x@host"):
        with pytest.raises(Invalid):
            SourceRegistry(url, SETTINGS)
