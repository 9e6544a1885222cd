"""The admin API over real HTTP on loopback: streams in batches, problem documents, access, health."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import jsonschema
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from bearlake.errors import Invalid, OutOfRoom, Unavailable
from bearlake.metadata import Metadata
from bearlake.metadata.compaction import OffsetRange, Swap, SwapObject, TaskClaim, TaskKind, TaskOffer
from bearlake.metadata.model import BatchCommit, ObjectCommit, ObjectKind, ObjectRef, Slice
from bearlake.metadata.open import open_metadata
from bearlake.objects.open import open_store
from bearlake.serving.admin import operations
from bearlake.serving.admin.access import AccessRoutes
from bearlake.serving.admin.auth import is_own_name, read_metrics_token, read_token
from bearlake.serving.admin.compaction import CompactionRoutes
from bearlake.serving.admin.lag import LagRoutes
from bearlake.serving.admin.server import AdminServer
from bearlake.serving.admin.settings import AdminSettings
from bearlake.serving.admin.streams import StreamRoutes
from bearlake.serving.admin.token import AdminToken, has_token
from bearlake.serving.admin.transactions import TransactionRoutes
from bearlake.serving.admin.users import UserRoutes
from bearlake.serving.groups.routes import GroupRoutes
from bearlake.serving.listener import ListenerSettings, open_listener
from bearlake.serving.membership import RegisteredServer, ServerSettings
from bearlake.serving.shares.routes import ShareRoutes
from bearlake.streams.service import Streams
from fixtures import by_name

TOKEN = "sixteen-characters"


@dataclass
class Api:
    """A running admin server and a client of it."""

    server: AdminServer
    http: aiohttp.ClientSession
    metadata: Metadata
    member: RegisteredServer

    async def call(self, method: str, path: str, body: object = None, **options: Any) -> tuple[int, Any]:
        async with self.http.request(method, path, json=body, **options) as response:
            return response.status, await response.json(content_type=None)


async def serve(settings: AdminSettings, token: AdminToken | None) -> AsyncIterator[Api]:
    metadata = await open_metadata("memory:///")
    store = open_store("memory:///")
    member = await RegisteredServer.join(metadata.servers, ServerSettings(name="one"), {"kafka": "127.0.0.1:9092"})
    streams = Streams(metadata, store, member.server)
    await streams.start()
    listener = open_listener(ListenerSettings(), "admin")
    server = AdminServer(
        listener,
        streams.metadata.log,
        member,
        settings,
        routes=[
            StreamRoutes(streams),
            AccessRoutes(streams.access),
            UserRoutes(metadata.users),
            CompactionRoutes(metadata),
            LagRoutes(metadata),
            GroupRoutes(streams.coordinating),
            ShareRoutes(streams.dispatching),
            TransactionRoutes(metadata, streams.transactions),
        ],
        token=token,
        config=lambda: [{"setting": "kafka.port"}],
        write_problem=lambda: member.failure,
    )
    await server.start()
    async with aiohttp.ClientSession(f"http://{server.endpoints['admin']}") as http:
        yield Api(server, http, metadata, member)
    await server.close()
    await streams.close()
    await store.close()
    await metadata.close()


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async for served in serve(AdminSettings(request_bytes_max=10_000, health_timeout_ms=5_000), None):
        yield served


@pytest.fixture
async def guarded() -> AsyncIterator[Api]:
    async for served in serve(AdminSettings(), AdminToken(TOKEN)):
        yield served


async def create(api: Api, *names: str, partition_count: int = 1) -> None:
    items = [{"name": name, "partition_count": partition_count} for name in names]
    status, _ = await api.call("POST", "/v1/streams", {"streams": items})
    assert status == 200


async def test_create_describe_list_alter_delete(api: Api) -> None:
    item = {"name": "orders", "partition_count": 3, "configs": {"retention.ms": "1000"}}

    status, created = await api.call("POST", "/v1/streams", {"streams": [item]})

    assert status == 200
    assert created["results"][0]["status"] == 201
    shown = created["results"][0]["stream"]
    assert (shown["name"], shown["partition_count"], shown["configs"]) == ("orders", 3, {"retention.ms": "1000"})
    assert await api.call("GET", "/v1/streams/orders") == (200, shown)
    assert await api.call("GET", "/v1/streams") == (200, {"streams": [shown], "next": None})

    change = {"name": "orders", "partition_count": 5, "set": {"cleanup.policy": "delete"}, "unset": ["retention.ms"]}
    status, altered = await api.call("PATCH", "/v1/streams", {"streams": [change]})
    assert status == 200
    assert altered["results"][0]["stream"]["partition_count"] == 5
    assert altered["results"][0]["stream"]["configs"] == {"cleanup.policy": "delete"}

    assert await api.call("DELETE", "/v1/streams?name=orders") == (
        200,
        {"results": [{"name": "orders", "status": 200}]},
    )
    assert (await api.call("GET", "/v1/streams/orders"))[0] == 404


async def test_a_stream_is_deleted_by_its_id_only_while_it_has_its_name(api: Api) -> None:
    await create(api, "a", "b")
    ids = {name: (await api.call("GET", f"/v1/streams/{name}"))[1]["id"] for name in ("a", "b")}
    items = [
        {"name": "a", "id": ids["b"]},
        {"name": "b", "id": ids["b"]},
        {"name": "a", "id": 1},
        {"name": "a", "no": 1},
    ]

    status, answer = await api.call("DELETE", "/v1/streams", {"streams": items})

    assert status == 207
    assert [result["status"] for result in answer["results"]] == [404, 200, 400, 400]
    assert f"has the id {ids['a']}, not " in answer["results"][0]["problem"]["detail"]
    assert [stream["name"] for stream in (await api.call("GET", "/v1/streams"))[1]["streams"]] == ["a"]


async def test_an_item_that_fails_does_not_stop_the_others(api: Api) -> None:
    await create(api, "taken")
    items = [{"name": "taken"}, {"name": "no/slash"}, {"name": "fine"}, {"name": "odd", "configs": {"no.such": "1"}}]

    status, answer = await api.call("POST", "/v1/streams", {"streams": items})

    assert status == 207
    assert [result["status"] for result in answer["results"]] == [409, 400, 201, 400]
    assert answer["results"][0]["problem"]["title"] == "Already exists"
    assert "Unknown topic config name: no.such" in answer["results"][3]["problem"]["detail"]


async def test_partitions_are_shown_with_offsets_in_pages(api: Api) -> None:
    await create(api, "wide", partition_count=5)

    _, first = await api.call("GET", "/v1/streams/wide/partitions?limit=3")
    _, second = await api.call("GET", f"/v1/streams/wide/partitions?limit=3&after={first['next']}")

    assert [row["partition"] for row in first["partitions"]] == [0, 1, 2]
    assert [row["partition"] for row in second["partitions"]] == [3, 4]
    assert second["next"] is None
    assert first["partitions"][0] == {
        "partition": 0,
        "start_offset": 0,
        "end_offset": 0,
        "compacted_offset": 0,
        "size_bytes": 0,
    }


async def test_streams_are_listed_in_pages_by_prefix(api: Api) -> None:
    await create(api, "a1", "a2", "a3", "b1")

    _, first = await api.call("GET", "/v1/streams?prefix=a&limit=2")
    _, second = await api.call("GET", f"/v1/streams?prefix=a&limit=2&after={first['next']}")

    assert [stream["name"] for stream in first["streams"]] == ["a1", "a2"]
    assert [stream["name"] for stream in second["streams"]] == ["a3"]
    assert second["next"] is None


async def write(api: Api, name: str, index: int, record_count: int, length: int) -> None:
    """Records of a partition, as the store sees them."""
    stream = await api.metadata.streams.get(name)
    batch = BatchCommit(stream.partition(index), 0, length, record_count, 0)
    token = f"wal/{name}/{index}"
    await api.metadata.log.commit(ObjectCommit(token=token, server=api.member.server, size=length, batches=[batch]))


async def test_streams_are_listed_with_their_size(api: Api) -> None:
    await create(api, "a", "b", partition_count=2)
    await write(api, "b", 0, 3, 100)
    await write(api, "b", 1, 4, 50)

    _, page = await api.call("GET", "/v1/streams?usage=true")

    assert [(s["name"], s["record_count"], s["size_bytes"]) for s in page["streams"]] == [("a", 0, 0), ("b", 7, 150)]


async def test_a_page_with_usage_ends_when_it_has_too_many_partitions(api: Api) -> None:
    await create(api, "a", "b", "c", partition_count=4_000)

    _, first = await api.call("GET", "/v1/streams?usage=true")
    _, second = await api.call("GET", f"/v1/streams?usage=true&after={first['next']}")

    assert [stream["name"] for stream in first["streams"]] == ["a", "b"]
    assert ([stream["name"] for stream in second["streams"]], second["next"]) == (["c"], None)


async def test_the_backlog_has_the_number_of_quarantined_tasks(api: Api) -> None:
    await create(api, "a")
    await write(api, "a", 0, 5, 100)
    tasks, server = api.metadata.tasks, api.member.server
    partition = (await api.metadata.streams.get("a")).partition(0)
    lease = await api.metadata.leases.acquire("planner", server)
    offer = TaskOffer(
        stream_number=1,
        kind=TaskKind.COMPACT,
        ranges=(OffsetRange(partition, 0, 5),),
        size_bytes=100,
        record_count=5,
        age_ms=0,
    )
    await tasks.offer([offer], lease)
    (task,) = await tasks.claim(server, limit=1, bytes_max=1_000)
    await tasks.fail(
        TaskClaim(task_id=task.id, epoch=task.epoch, worker=server), "no room", retry_after_ms=0, is_quarantined=True
    )

    status, backlog = await api.call("GET", "/v1/compaction/backlog")

    assert (status, backlog["size_bytes"], backlog["quarantined_count"]) == (200, 100, 1)
    assert [stream["stream"] for stream in backlog["streams"]] == ["a"]
    assert backlog["lag_seconds"] == backlog["age_ms"] / 1000

    _, others = await api.call("GET", "/v1/compaction/backlog?streams=b*&streams=c")
    assert (others["size_bytes"], others["quarantined_count"], others["streams"]) == (0, 0, [])
    _, same = await api.call("GET", "/v1/compaction/backlog?streams=b&streams=[a]")
    assert (same["size_bytes"], same["quarantined_count"]) == (100, 1)


@pytest.mark.parametrize("number", ["x", "-1", "²", "9" * 30, str(2**63)])
async def test_a_task_is_named_by_a_number_that_stores_can_hold(api: Api, number: str) -> None:
    status, problem = await api.call("POST", f"/v1/compaction/tasks/{number}/retry")

    assert (status, problem["title"]) == (400, "Invalid request")


async def test_without_compaction_there_is_no_last_commit(api: Api) -> None:
    nothing = {"commit_count": 0, "last_commit_ms": None, "streams": []}

    assert await api.call("GET", "/v1/compaction/commits") == (200, nothing)


async def test_finished_tasks_are_listed_for_existing_streams(api: Api) -> None:
    await create(api, "a", "b")
    metadata, server = api.metadata, api.member.server
    lease = await metadata.leases.acquire("planner", server)
    for round_number, name in enumerate(("a", "b", "a")):
        stream = await metadata.streams.get(name)
        key, start = stream.partition(0), 10 * (round_number // 2)
        await metadata.log.commit(
            ObjectCommit(
                token=f"wal/{round_number}",
                server=server,
                size=100,
                batches=[BatchCommit(key, 0, 100, 10, 1_700_000_000_000)],
            )
        )
        offer = TaskOffer(
            kind=TaskKind.COMPACT,
            stream_number=stream.number,
            ranges=[OffsetRange(key, start, start + 10)],
            size_bytes=100,
            record_count=10,
            age_ms=0,
        )
        (task,) = await metadata.tasks.offer([offer], lease)
        (task,) = await metadata.tasks.claim(server, limit=1, bytes_max=1_000)
        claim = TaskClaim(task_id=task.id, epoch=task.epoch, worker=server)
        data_file = SwapObject(
            object=ObjectRef(f"data/{round_number}", 50, ObjectKind.PARQUET),
            slices=[Slice(key, start, 10, 0, 100, 1_700_000_000_000)],
        )
        await metadata.tasks.prepare(claim, None, [data_file.object.key])
        await metadata.log.swap(Swap(claim=claim, objects=[data_file]))
    await by_name.delete(metadata, "b")

    status, commits = await api.call("GET", "/v1/compaction/commits")

    assert (status, commits["commit_count"]) == (200, 2)
    (shown,) = commits["streams"]
    assert (shown["stream"], shown["commit_count"]) == ("a", 2)
    assert commits["last_commit_ms"] == shown["last_commit_ms"] > 1_700_000_000_000
    assert (await api.call("GET", "/v1/compaction/commits?streams=x*"))[1]["commit_count"] == 0
    assert (await api.call("GET", "/v1/compaction/commits?streams=a/b"))[0] == 400


@pytest.mark.parametrize(
    ("method", "path", "body", "detail"),
    [
        ("POST", "/v1/streams", {"streams": []}, "with at least one item"),
        ("POST", "/v1/streams", {"stream": [{}]}, "Unrecognized field: stream: expected streams"),
        ("POST", "/v1/streams", [1], "the body: expected a JSON object with streams, found a list"),
        ("POST", "/v1/streams", {"streams": "a"}, 'with at least one item, found "a"'),
        ("POST", "/v1/streams", {}, "streams: expected a list of objects with at least one item, found nothing"),
        ("DELETE", "/v1/streams", None, "at least one stream name"),
        ("GET", "/v1/streams?limit=0", None, "limit: expected a whole number from 1 to 1000"),
        ("GET", "/v1/streams?limit=x", None, "limit: expected a whole number from 1 to 1000"),
    ],
)
async def test_a_wrong_request_is_a_problem_document(
    api: Api, method: str, path: str, body: object, detail: str
) -> None:
    status, problem = await api.call(method, path, body)

    assert status == 400
    assert problem["title"] == "Invalid request"
    assert detail in problem["detail"]


@pytest.mark.parametrize(
    ("item", "detail"),
    [
        ({"name": 1}, "name: expected text"),
        ({"name": "a", "partition_count": "2"}, 'partition_count: expected a whole number, found "2"'),
        ({"partition_count": 2}, "name: expected text, found nothing"),
        ({"name": "a", "partition_count": -1}, "partition count -1: expected 1 to"),
        ({"name": "a", "configs": {"retention.ms": 1}}, "configs.retention.ms: expected text, found 1"),
        ({"name": "a", "partitions": 2}, "Unrecognized field: partitions: expected name, partition_count and configs"),
    ],
)
async def test_the_error_for_a_wrong_item_names_the_expected_value(
    api: Api, item: dict[str, object], detail: str
) -> None:
    status, answer = await api.call("POST", "/v1/streams", {"streams": [item]})

    assert status == 207
    assert detail in answer["results"][0]["problem"]["detail"]


async def test_problems_have_their_content_type(api: Api) -> None:
    async with api.http.get("/v1/streams/absent") as response:
        assert (response.status, response.content_type) == (404, "application/problem+json")
    async with api.http.get("/no/such/path") as response:
        assert (response.status, response.content_type) == (404, "application/problem+json")
        assert "there is no route /no/such/path" in (await response.json(content_type=None))["detail"]


async def test_a_body_that_is_not_declared_as_json_is_refused(api: Api) -> None:
    async with api.http.post("/v1/streams", data=b'{"streams": [{"name": "a"}]}') as response:
        assert response.status == 400
        assert "Content-Type: application/json" in (await response.json(content_type=None))["detail"]


async def test_a_large_body_is_refused(api: Api) -> None:
    status, problem = await api.call("POST", "/v1/streams", {"streams": [{"name": "x" * 20_000}]})

    assert (status, problem["status"]) == (413, 413)


async def test_a_result_names_its_item_only_if_the_name_is_text(api: Api) -> None:
    deep = "[" * 930 + "]" * 930
    names = ['"a"', "7", '{"a": 1}', deep]
    body = '{"streams": [' + ", ".join(f'{{"name": {name}}}' for name in names) + "]}"
    headers = {"Content-Type": "application/json"}
    async with api.http.post("/v1/streams", data=body, headers=headers) as response:
        results = (await response.json())["results"]

    assert [(result["name"], result["status"]) for result in results] == [
        ("a", 201),
        (None, 400),
        (None, 400),
        (None, 400),
    ]


async def test_more_items_than_a_batch_may_have_are_refused(api: Api) -> None:
    query = "&".join(["name=a"] * 1001)

    status, problem = await api.call("DELETE", f"/v1/streams?{query}")

    assert (status, problem["title"]) == (413, "Too large")


async def test_health_asks_the_metadata_store(api: Api) -> None:
    status, healthy = await api.call("GET", "/healthz")
    assert (status, healthy["status"]) == (200, "ok")

    async def sleeping() -> int:
        raise Unavailable("the store sleeps")

    api.metadata.log.head = sleeping  # type: ignore[method-assign]
    status, problem = await api.call("GET", "/healthz")

    assert (status, problem["detail"]) == (503, "the store sleeps")


async def test_health_says_why_the_stores_take_no_writes_and_the_server_stays_ready(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> int:
        raise OutOfRoom("the disk is full")

    api.server.is_ready = True
    monkeypatch.setattr(api.member, "_settings", ServerSettings(heartbeat_retry_count=0))
    monkeypatch.setattr(api.metadata.servers, "heartbeat", full)
    await api.member.beat()
    status, problem = await api.call("GET", "/healthz")
    assert (status, problem["detail"]) == (503, "the disk is full")
    assert (await api.call("GET", "/readyz"))[0] == (await api.call("GET", "/livez"))[0] == 200

    monkeypatch.undo()
    await api.member.beat()
    assert (await api.call("GET", "/healthz"))[0] == 200


async def test_readiness_is_the_state_that_the_process_reports(api: Api) -> None:
    assert (await api.call("GET", "/readyz"))[0] == 503
    api.server.is_ready = True
    assert (await api.call("GET", "/readyz"))[0] == 200
    await api.server.drain(1000)
    assert (await api.call("GET", "/readyz"))[0] == 503


async def test_metrics_servers_and_config_are_served(api: Api) -> None:
    async with api.http.get("/metrics") as response:
        assert "bearlake_server_live_servers 1.0" in await response.text()
    _, servers = await api.call("GET", "/v1/servers")
    assert [server["name"] for server in servers["servers"]] == ["one"]
    assert await api.call("GET", "/v1/config") == (200, {"settings": [{"setting": "kafka.port"}]})


async def test_a_web_page_whose_name_resolves_to_loopback_is_refused(api: Api) -> None:
    status, problem = await api.call("GET", "/v1/streams", headers={"Host": "evil.example:9644"})

    assert (status, problem["title"]) == (403, "Not allowed")


async def test_a_token_is_required_on_all_paths_except_probes(guarded: Api) -> None:
    guarded.server.is_ready = True
    for method, path in operations.OPERATIONS:
        async with guarded.http.request(method, path.format(name="t", id=1), data=b"") as response:
            expected = (200, None) if path in ("/livez", "/readyz", "/healthz") else (401, "Bearer")
            assert (response.status, response.headers.get("WWW-Authenticate")) == expected, (method, path)
    assert (await guarded.call("GET", "/v1/streams", headers={"Authorization": "Bearer wrong"}))[0] == 401
    assert (await guarded.call("GET", "/v1/streams", headers={"Authorization": f"Bearer {TOKEN}"}))[0] == 200


async def test_requests_beyond_the_limit_get_a_retry_answer() -> None:
    async for api in serve(AdminSettings(request_count_max=1), None):
        entered, leave = asyncio.Event(), asyncio.Event()

        async def slow(entered: asyncio.Event = entered, leave: asyncio.Event = leave) -> int:
            entered.set()
            await leave.wait()
            return 0

        api.metadata.log.head = slow  # type: ignore[method-assign]
        first = asyncio.create_task(api.call("GET", "/healthz"))
        await entered.wait()

        status, problem = await api.call("GET", "/v1/servers")
        leave.set()

        assert (status, problem["title"]) == (503, "Overloaded")
        assert (await first)[0] == 200


def test_no_token_is_needed_on_loopback() -> None:
    assert read_token(AdminSettings(), {}) is None


def test_without_a_token_another_address_is_refused() -> None:
    with pytest.raises(Invalid, match=r"0\.0\.0\.0"):
        read_token(AdminSettings(host="0.0.0.0"), {})


def test_the_token_is_read_from_the_file_or_the_variable(tmp_path: Any) -> None:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")

    for settings, environ in (
        (AdminSettings(host="0.0.0.0", token_file=str(path)), {}),
        (AdminSettings(host="0.0.0.0"), {"BEARLAKE_ADMIN_TOKEN": TOKEN}),
        (AdminSettings(), {"BEARLAKE_ADMIN_TOKEN": TOKEN}),
    ):
        token = read_token(settings, environ)
        assert token is not None
        assert token.accepted() == [TOKEN]


def test_the_metrics_token_is_read_again_from_its_own_file(tmp_path: Any) -> None:
    path = tmp_path / "metrics"
    path.write_text("metrics-token-one")
    settings = AdminSettings(metrics_token_file=str(path))

    token = read_metrics_token(settings, AdminToken(TOKEN))

    assert token is not None
    assert token.accepted() == ["metrics-token-one"]
    assert read_metrics_token(AdminSettings(), AdminToken(TOKEN)) is None


def test_a_metrics_token_needs_another_admin_token(tmp_path: Any) -> None:
    path = tmp_path / "metrics"
    settings = AdminSettings(metrics_token_file=str(path))
    with pytest.raises(Invalid, match=r"admin\.metrics_token_file: cannot read"):
        read_metrics_token(settings, AdminToken(TOKEN))
    path.write_text(TOKEN)

    with pytest.raises(Invalid, match="without an admin token"):
        read_metrics_token(settings, None)
    with pytest.raises(Invalid, match="use another token"):
        read_metrics_token(settings, AdminToken(TOKEN))


def test_a_short_token_and_a_missing_file_are_refused(tmp_path: Any) -> None:
    with pytest.raises(Invalid, match="16"):
        read_token(AdminSettings(), {"BEARLAKE_ADMIN_TOKEN": "short"})
    (tmp_path / "empty").write_text("")
    with pytest.raises(Invalid, match="16"):
        read_token(AdminSettings(token_file=str(tmp_path / "empty")), {})
    with pytest.raises(Invalid, match="absent"):
        read_token(AdminSettings(token_file=str(tmp_path / "absent")), {})


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer ü"]
)
def test_wrong_authorization_headers_are_refused(header: str | None) -> None:
    assert not has_token(header, TOKEN)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:9644", True),
        ("localhost", True),
        ("[::1]:9644", True),
        ("LOCALHOST:1", True),
        ("a.example:1", False),
        ("", False),
    ],
)
def test_loopback_names_are_known_in_the_host_header(host: str, *, expected: bool) -> None:
    assert is_own_name(host) is expected


async def test_the_openapi_document_has_every_route_and_is_valid(api: Api) -> None:
    status, document = await api.call("GET", "/openapi.json")
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}

    assert status == 200
    assert described == set(operations.OPERATIONS)
    assert all(operation["summary"] for path in document["paths"].values() for operation in path.values())
    assert [str(error) for error in OpenAPIV31SpecValidator(document).iter_errors()] == []


async def test_the_openapi_document_requires_the_same_fields_as_the_server(api: Api) -> None:
    _, document = await api.call("GET", "/openapi.json")
    schemas = document["components"]["schemas"]
    stream = {"name": "a", "partition_count": 2, "configs": {}}
    _, created = await api.call("POST", "/v1/streams", {"streams": [stream, {"name": "b", "set": {}}]})

    assert set(schemas["NewStream"]["properties"]) == set(stream)
    assert schemas["NewStream"]["required"] == ["name"]
    validator = jsonschema.Draft202012Validator(
        {"$ref": "#/components/schemas/Results", "components": document["components"]}
    )
    validator.validate(created)
    assert [result["status"] for result in created["results"]] == [201, 400]
