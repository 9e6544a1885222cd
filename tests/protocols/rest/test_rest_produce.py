"""Producing and topics in the v2 API; the test reads written records without a protocol."""

import base64
import gzip
import json

import pytest
import zstandard

from bearlake.protocols.rest import reading
from bearlake.records import partitioning
from bearlake.records.codec import Record
from bearlake.streams.fetched import FetchRange
from fixtures.rest_server import Answer, MakeServers, RestNode


async def stored(rest: RestNode, name: str, index: int = 0) -> list[tuple[int, Record]]:
    view = await rest.streams.catalog.find(name)
    ranges = [FetchRange(view.partition(index), 0, 1 << 26)]
    (fetched,) = await rest.streams.fetch(ranges, bytes_min=0, bytes_max=1 << 26, wait_ms=0)
    assert fetched.error is None
    found, _ = await reading.take(fetched, 1 << 26, reading.Room(1 << 20, 1 << 26))
    return found


def b64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def code(answer: Answer) -> tuple[int, int]:
    assert set(answer.body) == {"error_code", "message"}
    assert answer.body["message"]
    return answer.status, answer.body["error_code"]


async def test_binary_records_keep_their_bytes_and_get_dense_offsets(rest: RestNode) -> None:
    await rest.create("t")
    values = [None, b"", b"\x00\xff", bytes(1 << 20)]
    records = [
        {"key": b64(value) if value else None, "value": None if value is None else b64(value)} for value in values[:3]
    ]
    answer = await rest.post("/topics/t", {"records": records}, kind="binary")

    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/vnd.kafka.v2+json"
    assert answer.body == {
        "offsets": [{"partition": 0, "offset": at, "error_code": None, "error": None} for at in range(3)],
        "key_schema_id": None,
        "value_schema_id": None,
    }
    assert [record.value for _, record in await stored(rest, "t")] == values[:3]


async def test_json_records_are_stored_as_compact_text(rest: RestNode) -> None:
    await rest.create("t")
    body = {"records": [{"key": "k", "value": {"ö": [1, 2.5, None, True]}}, {"value": None}]}
    answer = await rest.post("/topics/t", body, kind="json")

    assert answer.status == 200
    found = [(record.key, record.value) for _, record in await stored(rest, "t")]
    assert found == [(b'"k"', '{"ö":[1,2.5,null,true]}'.encode()), (None, None)]


async def test_records_go_to_their_given_partition_or_to_that_of_their_key(rest: RestNode) -> None:
    await rest.create("t", 4)
    key = b64(b"a key")
    body = {"records": [{"value": "YQ==", "partition": 2}, {"key": key, "value": "YQ=="}, {"value": "Yg=="}]}
    answer = await rest.post("/topics/t", body, kind="binary")

    partitions = [result["partition"] for result in answer.body["offsets"]]
    assert partitions[:2] == [2, partitioning.partition_of(b"a key", 4)]
    assert 0 <= partitions[2] < 4


@pytest.mark.parametrize(
    ("key", "expected"), [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536)]
)
def test_partitions_of_keys_are_those_of_the_java_client(key: bytes, expected: int) -> None:
    assert partitioning.murmur2(key) == expected & 0xFFFFFFFF  # UtilsTest.testMurmur2


async def test_a_request_for_one_partition_writes_there(rest: RestNode) -> None:
    await rest.create("t", 2)
    answer = await rest.post("/topics/t/partitions/1", {"records": [{"value": "YQ=="}]}, kind="binary")

    assert answer.body["offsets"] == [{"partition": 1, "offset": 0, "error_code": None, "error": None}]
    assert not await stored(rest, "t", 0)


async def test_records_beyond_the_batch_limit_become_several_batches(rest: RestNode) -> None:
    await rest.create("t", max_message_bytes="1000")
    value = b64(bytes(300))
    body = {"records": [{"value": value}] * 7 + [{"value": b64(bytes(2000))}] + [{"value": value}]}
    answer = await rest.post("/topics/t", body, kind="binary")

    offsets = [result["offset"] for result in answer.body["offsets"]]
    assert offsets == [0, 1, 2, 3, 4, 5, 6, None, 7]
    assert answer.body["offsets"][7]["error_code"] == 1
    assert "1000 bytes" in answer.body["offsets"][7]["error"]


@pytest.mark.parametrize(
    ("path", "body", "kind", "expected"),
    [
        ("/topics/t/partitions/9", {"records": [{"value": "YQ=="}]}, "binary", (404, 40402)),
        ("/topics/t", {"records": [{"value": "YQ==", "partition": 7}]}, "binary", (404, 40402)),
        ("/topics/t", {"records": []}, "binary", (422, 422)),
        ("/topics/t", {}, "binary", (422, 422)),
        ("/topics/t", [1], "binary", (422, 422)),
        ("/topics/t", {"records": [1]}, "binary", (422, 422)),
        ("/topics/t", {"records": [{"value": "not base64!"}]}, "binary", (422, 422)),
        ("/topics/t", {"records": [{"value": 7}]}, "binary", (422, 422)),
        ("/topics/t", {"records": [{"value": "YQ==", "partition": -1}]}, "binary", (422, 422)),
        ("/topics/t", {"records": [{"valeu": "YQ=="}]}, "binary", (422, 422)),
        ("/topics/t", {"records": [{"value": "\ud800"}]}, "json", (422, 422)),
        ("/topics/t", b"{", "binary", (400, 400)),
        ("/topics/t", b"[" * 100_000, "binary", (400, 400)),
        ("/topics/t", {"records": [{"value": "YQ=="}]}, "yaml", (415, 415)),
        ("/topics/t", b'{"records": [{"value": 1e999}]}', "json", (422, 422)),
        ("/topics/bad%20name", {"records": [{"value": "YQ=="}]}, "binary", (422, 422)),
    ],
)
async def test_errors_of_wrong_requests_name_the_fault(
    rest: RestNode, path: str, body: object, kind: str, expected: tuple[int, int]
) -> None:
    await rest.create("t")
    answer = await rest.post(path, body, kind=kind)

    assert code(answer) == expected
    assert not await stored(rest, "t")


async def test_unknown_topics_are_created_unless_the_settings_forbid(rest_servers: MakeServers) -> None:
    (creates,) = await rest_servers(1)
    (refuses,) = await rest_servers(1, auto_create_streams=False)
    body = {"records": [{"value": "YQ=="}]}

    assert (await creates.post("/topics/new", body, kind="binary")).status == 200
    assert code(await refuses.post("/topics/other", body, kind="binary")) == (404, 40401)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
async def test_compressed_bodies_are_read(rest: RestNode, encoding: str) -> None:
    text = json.dumps({"records": [{"value": "YQ=="}]}).encode()
    body = gzip.compress(text) if encoding == "gzip" else zstandard.compress(text)
    answer = await rest.post("/topics/t", body, kind="binary", headers={"Content-Encoding": encoding})

    assert answer.status == 200


async def test_bodies_over_the_limit_are_refused_compressed_or_not(rest_servers: MakeServers) -> None:
    (rest,) = await rest_servers(1, request_bytes_max=10_000)
    plain = await rest.post("/topics/t", bytes(20_000), kind="binary")
    bomb = gzip.compress(bytes(1_000_000))
    packed = await rest.post("/topics/t", bomb, kind="binary", headers={"Content-Encoding": "gzip"})
    broken = await rest.post("/topics/t", b"no gzip", kind="binary", headers={"Content-Encoding": "gzip"})
    unknown = await rest.post("/topics/t", b"x", kind="binary", headers={"Content-Encoding": "br"})

    assert [code(answer) for answer in (plain, packed)] == [(413, 413), (413, 413)]
    assert [code(answer) for answer in (broken, unknown)] == [(400, 400), (415, 415)]


async def test_topics_partitions_and_brokers_are_described(rest: RestNode) -> None:
    await rest.create("b", 2, retention_ms="1000")
    await rest.create("a")
    await rest.post("/topics/a", {"records": [{"value": "YQ=="}]}, kind="binary")
    node = rest.member.node_id
    replicas = [{"broker": node, "leader": True, "in_sync": True}]
    topic = (await rest.get("/topics/b")).body

    assert (await rest.get("/topics")).body == ["a", "b"]
    assert topic["name"] == "b"
    assert topic["configs"]["retention.ms"] == "1000"
    assert topic["partitions"] == [{"partition": at, "leader": node, "replicas": replicas} for at in range(2)]
    assert (await rest.get("/topics/b/partitions")).body == topic["partitions"]
    assert (await rest.get("/topics/b/partitions/1")).body == topic["partitions"][1]
    assert (await rest.get("/topics/a/partitions/0/offsets")).body == {"beginning_offset": 0, "end_offset": 1}
    assert (await rest.get("/brokers")).body == {"brokers": [node]}
    assert code(await rest.get("/topics/c")) == (404, 40401)
    assert code(await rest.get("/topics/b/partitions/2")) == (404, 40402)
    assert code(await rest.get("/topics/b/partitions/x")) == (404, 404)
    assert code(await rest.get("/nothing")) == (404, 404)


async def test_only_allowed_origins_may_call_from_web_pages(rest_servers: MakeServers) -> None:
    (rest,) = await rest_servers(1, cors_origins=("https://a.example",))
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    allowed = await rest.ask("OPTIONS", "/topics/t", headers={**asked, "Origin": "https://a.example"})
    other = await rest.ask("OPTIONS", "/topics/t", headers={**asked, "Origin": "https://b.example"})
    simple = await rest.get("/topics", headers={"Origin": "https://a.example"})

    assert (allowed.status, allowed.headers["Access-Control-Allow-Origin"]) == (204, "https://a.example")
    assert allowed.headers["Access-Control-Allow-Headers"] == "content-type"
    assert "Access-Control-Allow-Origin" not in other.headers
    assert simple.headers["Access-Control-Allow-Origin"] == "https://a.example"


async def test_requests_over_the_limit_get_a_retry_answer(rest_servers: MakeServers) -> None:
    (rest,) = await rest_servers(1, request_count_max=0)
    answer = await rest.get("/topics")

    assert code(answer) == (503, 50003)
    assert answer.headers["Retry-After"] == "1"
