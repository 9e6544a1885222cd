"""The v3 API reads records from positions: starts, waiting, keys, headers, times, and values by their schemas."""

import asyncio
import base64
from itertools import pairwise
from typing import Any

import pytest

from bearlake.records.codec import Record
from bearlake.streams.schemas.values import wire
from bearlake.telemetry import metrics
from fixtures.rest_server import RestNode
from fixtures.waiting import until

JSON = {"Content-Type": "application/json"}
SCHEMA = '{"type": "record", "name": "Sale", "fields": [{"name": "id", "type": "long"}]}'
BEYOND_DOUBLE = 9_007_199_254_740_993


def topic(rest: RestNode, name: str = "t") -> str:
    return f"/v3/clusters/{rest.member.cluster_id}/topics/{name}"


async def read(rest: RestNode, body: dict[str, Any], name: str = "t") -> Any:
    answer = await rest.post(f"{topic(rest, name)}/records:read", body, headers=JSON)
    assert answer.status == 200, answer.body
    return answer.body


async def write(rest: RestNode, *values: str, partition: int = 0, **fields: Any) -> None:
    for value in values:
        body = {"partition_id": partition, "value": {"type": "STRING", "data": value}, **fields}
        assert (await rest.post(f"{topic(rest)}/records", body, headers=JSON)).status == 200


def values(found: Any) -> list[str]:
    return [record["value"]["text"] for record in found["data"]]


async def test_records_have_key_headers_time_and_place(rest: RestNode) -> None:
    await rest.create("t")
    headers = [{"name": "a", "value": base64.b64encode(b"\xff").decode()}, {"name": "b", "value": None}]
    await write(
        rest, "hello", key={"type": "STRING", "data": "k"}, headers=headers, timestamp="2026-01-31T12:00:00.123Z"
    )
    (record,) = (await read(rest, {"start": "earliest"}))["data"]

    assert record == {
        "partition_id": 0,
        "offset": 0,
        "timestamp": "2026-01-31T12:00:00.123Z",
        "timestamp_ms": 1_769_860_800_123,
        "key": {"type": "STRING", "text": "k", "size": 1},
        "value": {"type": "STRING", "text": "hello", "size": 5},
        "headers": headers,
    }


async def test_an_answer_says_where_each_partition_continues(rest: RestNode) -> None:
    await rest.create("t", 2)
    await write(rest, "a", "b", "c", partition=1)
    first = await read(rest, {"start": "earliest", "record_count_max": 2})
    second = await read(
        rest, {"positions": [{k: p[k] for k in ("partition_id", "offset")} for p in first["positions"]]}
    )

    assert values(first) == ["a", "b"]
    assert values(second) == ["c"]
    assert second["positions"] == [
        {"partition_id": 0, "offset": 0, "start_offset": 0, "end_offset": 0},
        {"partition_id": 1, "offset": 3, "start_offset": 0, "end_offset": 3},
    ]


async def test_starts_are_the_end_the_newest_and_a_time(rest: RestNode) -> None:
    await rest.create("t")
    await write(rest, "a", timestamp="2026-01-01T00:00:00Z")
    await write(rest, "b", timestamp="2026-01-02T00:00:00Z")
    await write(rest, "c", timestamp="2026-01-03T00:00:00Z")

    assert values(await read(rest, {})) == []
    assert values(await read(rest, {"start": "last", "record_count_max": 2})) == ["b", "c"]
    assert values(await read(rest, {"start": "timestamp", "timestamp_ms": 1_767_312_000_000})) == ["b", "c"]
    assert values(await read(rest, {"start": "timestamp", "timestamp_ms": 4_000_000_000_000})) == []


async def test_a_request_waits_for_the_first_record(rest: RestNode) -> None:
    await rest.create("t")
    waiting = asyncio.create_task(read(rest, {"wait_ms": 30_000}))
    await until(lambda: rest.server.open_count == 1)
    await write(rest, "late")

    assert values(await waiting) == ["late"]


async def test_a_draining_server_answers_requests_that_wait(rest: RestNode) -> None:
    await rest.create("t")
    waiting = asyncio.create_task(read(rest, {"wait_ms": 30_000}))
    await until(lambda: rest.server.open_count == 1)
    await rest.server.drain(20_000)

    assert values(await waiting) == []


async def test_values_by_a_schema_are_shown_with_exact_numbers_and_others_beside_them(rest: RestNode) -> None:
    await rest.create("t")
    by_schema = {"type": "AVRO", "schema": SCHEMA, "data": {"id": BEYOND_DOUBLE}}
    report = await rest.post(f"{topic(rest)}/records", {"value": by_schema}, headers=JSON)
    schema_id = report.body["value"]["schema_id"]
    other = [b"\xff\xfe", wire.head(4_000) + b"x", wire.head(schema_id) + b"\xff", b"\0"]
    for octets in other:
        body = {"value": {"type": "BINARY", "data": base64.b64encode(octets).decode()}}
        assert (await rest.post(f"{topic(rest)}/records", body, headers=JSON)).status == 200
    assert (
        await rest.post(f"{topic(rest)}/records", {"key": {"type": "STRING", "data": "k"}}, headers=JSON)
    ).status == 200
    shown = [record["value"] for record in (await read(rest, {"start": "earliest"}))["data"]]

    assert shown[0] == {
        "type": "AVRO",
        "text": f'{{"id":{BEYOND_DOUBLE}}}',
        "schema_id": schema_id,
        "size": shown[0]["size"],
    }
    assert shown[1] == {"type": "BINARY", "text": "//4=", "size": 2}
    assert shown[2]["problem"] == "its schema, 4000, is not in the registry"
    assert (shown[3]["type"], shown[3]["schema_id"]) == ("BINARY", schema_id)
    assert shown[3]["problem"]
    assert shown[4] == {"type": "STRING", "text": "\0", "size": 1}
    assert shown[5] is None


async def test_a_header_name_that_is_not_utf8_does_not_break_the_answer(rest: RestNode) -> None:
    await rest.create("t")
    view = rest.streams.catalog.peek("t")
    assert view is not None
    from bearlake.protocols.rest.v3 import shown
    from bearlake.streams.principal import ANONYMOUS

    class Nothing:
        async def opened(self, who: object, values: list[bytes | None]) -> list[None]:
            return [None] * len(values)

    record = Record(value=b"v", headers=((b"\xff".decode(errors="surrogateescape"), b"1"),), timestamp=-1)
    (found,) = await shown.records(Nothing(), ANONYMOUS, [(0, 0, record)])  # type: ignore[arg-type]

    assert found["headers"] == [{"name": "\ufffd", "value": "MQ=="}]
    assert found["timestamp"] is None


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({"partition_ids": [1]}, 404, "partition 1"),
        ({"partition_ids": [0, 0]}, 400, "once"),
        ({"positions": [{"partition_id": 0, "offset": 9}]}, 410, "offset 9"),
        ({"record_count_max": 0}, 400, "record_count_max"),
        ({"start": "middle"}, 400, "start"),
    ],
)
async def test_what_cannot_be_read_is_refused(rest: RestNode, body: dict[str, Any], status: int, word: str) -> None:
    await rest.create("t")
    answer = await rest.post(f"{topic(rest)}/records:read", body, headers=JSON)

    assert answer.status == status
    assert word in answer.body["message"]


async def test_more_partitions_than_one_request_may_read_must_be_named(rest: RestNode) -> None:
    await rest.create("wide", 1_001)
    refused = await rest.post(f"{topic(rest, 'wide')}/records:read", {}, headers=JSON)
    named = await read(rest, {"partition_ids": [1_000]}, "wide")

    assert refused.status == 400
    assert [place["partition_id"] for place in named["positions"]] == [1_000]


async def test_an_unknown_topic_is_not_found(rest: RestNode) -> None:
    assert (await rest.post(f"{topic(rest)}/records:read", {}, headers=JSON)).status == 404


async def test_records_that_clients_read_count_among_the_bytes_read(rest: RestNode) -> None:
    await rest.create("t")
    await write(rest, "four", key={"type": "STRING", "data": "k"})
    base = "/consumers/g/instances/c"
    await rest.post("/consumers/g", {"name": "c", "format": "binary", "auto.offset.reset": "earliest"})
    await rest.post(f"{base}/subscription", {"topics": ["t"]})
    counts = [metrics.FETCH_BYTES.value]
    await read(rest, {"start": "earliest"})
    counts.append(metrics.FETCH_BYTES.value)
    await rest.get(f"{base}/records", headers={"Accept": "application/vnd.kafka.binary.v2+json"})
    counts.append(metrics.FETCH_BYTES.value)
    await rest.get("/v1/stream/t/0")
    counts.append(metrics.FETCH_BYTES.value)

    assert [after - before for before, after in pairwise(counts)] == [5, 5, 4]  # a stream of values has no keys
