"""Large bodies and reads do not hold a REST server's event loop, however many values or records they have.

The bound is three times the watchdog's because a test's client and server share the loop.
"""

import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bearlake.protocols.rest.settings import RestSettings
from bearlake.protocols.rest.tailing.events import _lines
from bearlake.records.batch import Compression
from bearlake.records.codec import Record, encode
from bearlake.records.json_values import has_more_values
from bearlake.telemetry.watchdog import LIMIT_S
from fixtures.deployment import append_of
from fixtures.held import held_at_most
from fixtures.rest_server import RestNode

BOUND_S = 3 * LIMIT_S
COUNT = 100_000
MIB = 1024 * 1024
BINARY = "application/vnd.kafka.binary.v2+json"


async def post(rest: RestNode, path: str, body: bytes, kind: str, method: str = "POST", **headers: str) -> int:
    """The status of a request whose body is sent in pieces."""
    headers = {"Content-Type": kind} | {name.replace("_", "-"): text for name, text in headers.items()}
    async with rest.session.request(method, rest.url + path, data=pieces(body), headers=headers) as answer:
        await answer.read()
        return answer.status


async def warm(rest: RestNode) -> None:
    """Load the modules of what is measured."""
    assert await post(rest, "/v1/stream/s", b"[]", "application/json", "PUT") == 201
    assert await post(rest, "/v1/stream/s", b"[1]", "application/json") == 204
    assert await post(rest, "/topics/t", b'{"records":[{"value":""}]}', BINARY) == 200


async def pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 64 * 1024):
        yield body[start : start + 64 * 1024]


WRITES: dict[str, tuple[str, str, bytes, dict[str, str]]] = {
    "v2": ("/topics/t", BINARY, b'{"records":[' + b",".join([b'{"value":""}'] * COUNT) + b"]}", {}),
    "a JSON list": ("/v1/stream/s", "application/json", b"[" + b",".join([b"[]"] * COUNT) + b"]", {}),
    "gzip": (
        "/v1/stream/s",
        "application/json",
        gzip.compress(json.dumps("x" * 12 * MIB).encode()),
        {"Content_Encoding": "gzip"},
    ),
}


@pytest.mark.parametrize("what", WRITES)
async def test_a_large_body_does_not_hold_the_loop(rest: RestNode, what: str) -> None:
    await rest.create("t", max_message_bytes=str(32 * MIB))
    await warm(rest)
    path, kind, body, headers = WRITES[what]

    async with held_at_most(BOUND_S):
        status = await post(rest, path, body, kind, **headers)

    assert status == {"v2": 200, "a JSON list": 204, "gzip": 413}[what]  # 12 MiB are too large for a record


@pytest.mark.parametrize("path", ["/topics/t", "/v1/stream/s"])
async def test_a_body_of_more_values_than_allowed_is_refused_at_once(rest: RestNode, path: str) -> None:
    await warm(rest)
    kind = BINARY if path == "/topics/t" else "application/json"
    items = b",".join([b"{}"] * 3_000_000)
    body = b'{"records":[' + items + b"]}" if path == "/topics/t" else b"[" + items + b"]"

    async with held_at_most(BOUND_S):
        status = await post(rest, path, body, kind)

    assert status == 413


async def test_a_read_of_a_bomb_stops_at_a_number_of_records_and_continues(rest: RestNode) -> None:
    """A batch of 300 KB has 300,000 records."""
    await rest.put("/v1/stream/s", headers={"Content-Type": "text/plain"})
    view = await rest.streams.catalog.find("s")
    bomb = append_of(view, encode([Record(value=b"x", timestamp=-1)] * 300_000, codec=Compression.ZSTD))
    await rest.streams.append([bomb], rest.streams.seen.position)
    count = RestSettings().read_record_count_max
    await rest.get("/v1/stream/s?offset=-1")

    lengths, offset = [], "-1"
    async with held_at_most(BOUND_S):
        for _ in range(3):
            answer = await rest.get(f"/v1/stream/s?offset={offset}")
            lengths.append(len(answer.body))
            offset = answer.headers["Stream-Next-Offset"]

    assert lengths == [count, count, count]
    assert answer.headers["Stream-Up-To-Date"] == "true"


VALUES: dict[str, Any] = {
    "numbers": [1, 2, 3],
    "nested": [[], [[]], {}, {"a": {"b": []}}],
    "texts with marks": ["a,b,[{", '"', "\\", '\\"', "\\\\", ",", ""],
    "empty": [],
    "a text": ",[{" * 100,
}


@pytest.mark.parametrize("what", VALUES)
def test_values_are_counted_outside_texts(what: str) -> None:
    body = json.dumps(VALUES[what]).encode()
    marks = _marks(VALUES[what])

    assert not has_more_values(body, marks)
    assert marks == 0 or has_more_values(body, marks - 1)


def _marks(value: Any) -> int:
    """Commas, and brackets that open."""
    match value:
        case list():
            return 1 + max(0, len(value) - 1) + sum(map(_marks, value))
        case dict():
            return 1 + max(0, len(value) - 1) + sum(map(_marks, value.values()))
        case _:
            return 0


def test_many_lines_become_lines_of_data() -> None:
    text = " a\r\nb\r\r\n c\n" + "x" * 300_000 + "\n y\n" * 200_000

    lines = _lines(text).decode().splitlines()

    expected = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert [line.removeprefix("data:") for line in lines] == [
        f" {line}" if line.startswith(" ") else line for line in expected
    ]


async def v3_reports(rest: RestNode, body: bytes) -> list[dict[str, Any]]:
    """The reports of a v3 request."""
    cluster = (await rest.get("/v3/clusters")).body["data"][0]["cluster_id"]
    url = f"{rest.url}/v3/clusters/{cluster}/topics/t/records"
    async with rest.session.post(url, data=pieces(body), headers={"Content-Type": "application/json"}) as answer:
        return [json.loads(line) for line in (await answer.read()).splitlines()]


V3 = {
    "empty records": b"{}",
    "small values": b'{"value":{"type":"BINARY","data":"eA=="}}',
    "refused records": b'{"partition_id":9}',
    "values with schemas": b'{"value":{"schema_id":77,"data":1}}',
}


@pytest.mark.parametrize("what", V3)
async def test_many_records_of_v3_do_not_hold_the_loop(rest: RestNode, what: str) -> None:
    """The answer has about 150 bytes for each record, which may have two."""
    await rest.create("t", 3)
    count = 150_000 // len(V3[what])
    await v3_reports(rest, V3[what] * 3)
    cluster = (await rest.get("/v3/clusters")).body["data"][0]["cluster_id"]
    url = f"{rest.url}/v3/clusters/{cluster}/topics/t/records"
    headers = {"Content-Type": "application/json"}
    line_count = 0

    async with held_at_most(BOUND_S), rest.session.post(url, data=V3[what] * count, headers=headers) as answer:
        async for chunk in answer.content.iter_any():
            line_count += chunk.count(b"\n")

    assert line_count == count


async def test_records_of_v3_that_arrive_together_are_reported_in_their_order(rest: RestNode) -> None:
    await rest.create("t", 1)
    items = [b'{"partition_id":9}' if at % 5 == 4 else b"{}" for at in range(5_000)]

    reports = await v3_reports(rest, b"".join(items))

    assert [report["error_code"] == 200 for report in reports] == [at % 5 != 4 for at in range(5_000)]
    assert [report["offset"] for report in reports if report["error_code"] == 200] == list(range(4_000))


async def test_a_record_of_v3_with_too_many_values_is_refused_before_it_is_parsed(rest: RestNode) -> None:
    await rest.create("t", 1)
    body = b'{}{"value":{"type":"JSON","data":[' + b"0," * 300_000 + b"0]}}"

    async with held_at_most(BOUND_S):
        reports = await v3_reports(rest, body)

    assert reports[0]["error_code"] == 200
    assert reports[-1]["error_code"] == 413
