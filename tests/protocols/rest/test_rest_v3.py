"""The v3 API: clusters, topics, configs, streamed produce with reports, groups and lag."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bearlake.errors import TooLarge
from bearlake.metadata.model import CommittedOffset
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.v3.record_stream import Objects
from fixtures.groups import ref
from fixtures.rest_server import Answer, RestNode

JSON = {"Content-Type": "application/json"}


def base(rest: RestNode) -> str:
    return f"/v3/clusters/{rest.member.cluster_id}"


def reports(answer: Answer) -> list[dict[str, Any]]:
    octets = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
    return [json.loads(line) for line in octets.split(b"\r\n") if line]


async def produce(rest: RestNode, body: bytes) -> list[dict[str, Any]]:
    url = f"{rest.url}{base(rest)}/topics/t/records"
    async with rest.session.post(url, data=body, headers=JSON) as response:
        return reports(Answer(response.status, await response.read(), response.headers))


async def test_clusters_and_brokers_name_this_deployment(rest: RestNode) -> None:
    clusters = (await rest.get("/v3/clusters")).body
    cluster = (await rest.get(base(rest))).body
    broker = (await rest.get(f"{base(rest)}/brokers/{rest.member.node_id}")).body

    assert clusters["data"] == [cluster]
    assert cluster["cluster_id"] == rest.member.cluster_id
    assert cluster["metadata"]["self"] == rest.url + base(rest)
    assert broker["broker_id"] == rest.member.node_id
    assert (await rest.get("/v3/clusters/other")).status == 404
    assert (await rest.get(f"{base(rest)}/brokers/99")).status == 404


async def test_topics_are_created_grown_and_deleted(rest: RestNode) -> None:
    topics = f"{base(rest)}/topics"
    body = {"topic_name": "t", "partitions_count": 2, "configs": [{"name": "retention.ms", "value": "5"}]}
    dry = await rest.post(topics, {**body, "validate_only": True})
    made = await rest.post(topics, body)
    again = await rest.post(topics, body)
    grown = await rest.ask("PATCH", f"{topics}/t", {"partitions_count": 3})
    shrunk = await rest.ask("PATCH", f"{topics}/t", {"partitions_count": 1})
    listed = (await rest.get(topics)).body["data"]

    assert (dry.status, made.status, grown.body["partitions_count"]) == (200, 201, 3)
    assert made.body["topic_name"] == "t"
    assert (again.status, again.body["error_code"]) == (400, 40002)
    assert (shrunk.status, shrunk.body["error_code"]) == (400, 40002)
    assert [topic["topic_name"] for topic in listed] == ["t"]
    assert len((await rest.get(f"{topics}/t/partitions")).body["data"]) == 3
    assert (await rest.get(f"{topics}/t/partitions/2")).body["partition_id"] == 2
    assert (await rest.get(f"{topics}/t/partitions/3")).status == 404
    assert (await rest.delete(f"{topics}/t")).status == 204
    gone = await rest.get(f"{topics}/t")
    assert (gone.status, gone.body["error_code"]) == (404, 40403)


async def test_configs_are_set_reset_and_altered_together(rest: RestNode) -> None:
    await rest.create("t")
    configs = f"{base(rest)}/topics/t/configs"
    assert (await rest.put(f"{configs}/retention.ms", {"value": "77"})).status == 204
    own = (await rest.get(f"{configs}/retention.ms")).body
    data = [{"name": "retention.ms", "operation": "DELETE"}, {"name": "cleanup.policy", "value": "compact"}]
    assert (await rest.post(f"{configs}:alter", {"data": data})).status == 204
    values = {
        config["name"]: (config["value"], config["is_default"]) for config in (await rest.get(configs)).body["data"]
    }
    wrong = await rest.put(f"{configs}/retention.ms", {"value": "soon"})
    unknown = await rest.get(f"{configs}/no.such")

    assert (own["value"], own["is_default"], own["source"]) == ("77", False, "DYNAMIC_TOPIC_CONFIG")
    assert values["retention.ms"] == ("604800000", True)
    assert values["cleanup.policy"] == ("compact", False)
    assert (wrong.status, wrong.body["error_code"]) == (400, 40002)
    assert unknown.status == 404
    assert (await rest.delete(f"{configs}/cleanup.policy")).status == 204


async def test_each_record_has_a_report_and_a_bad_one_stops_no_other(rest: RestNode) -> None:
    await rest.create("t", 2)
    records = [
        {"partition_id": 1, "key": {"type": "STRING", "data": "ü"}, "value": {"type": "JSON", "data": {"a": 1}}},
        {"value": {"type": "BINARY", "data": "no base64!"}},
        {"partition_id": 9},
        {
            "partition_id": 1,
            "value": {"type": "BINARY", "data": "AP8="},
            "headers": [{"name": "h", "value": "AQ=="}, {"name": "n", "value": None}],
            "timestamp": "2026-01-31T12:00:00Z",
        },
    ]
    found = await produce(rest, "".join(json.dumps(record) for record in records).encode())

    assert [result["error_code"] for result in found] == [200, 422, 40402, 200]
    assert found[0]["key"] == {"type": "STRING", "size": 2}
    assert found[0]["value"] == {"type": "JSON", "size": 7}
    assert (found[3]["partition_id"], found[3]["offset"]) == (1, 1)
    assert found[3]["timestamp"] == "2026-01-31T12:00:00.000Z"


async def test_a_record_with_half_a_surrogate_pair_stops_no_other(rest: RestNode) -> None:
    await rest.create("t")
    bad = [r'{"\ud800": 1}', r'{"timestamp": "\ud800"}', r'{"headers": [{"name": "h", "value": "\ud800"}]}']
    good = '{"value": {"type": "STRING", "data": "a"}}'
    found = await produce(rest, "".join([*bad, good]).encode())

    assert [result["error_code"] for result in found] == [400, 400, 400, 200]


async def test_values_at_the_edge_of_what_can_be_nested_are_stored_or_refused(rest: RestNode) -> None:
    await rest.create("t")
    codes = set()
    for depth in range(800, 1000):
        value = "[" * depth + "]" * depth
        (report,) = await produce(rest, f'{{"value": {{"type": "JSON", "data": {value}}}}}'.encode())
        codes.add(report["error_code"])
        codes.add((await rest.post("/topics/t", f'{{"records": [{{"value": {value}}}]}}'.encode(), kind="json")).status)

    assert {200, 400} <= codes <= {200, 400, 422}


async def test_reports_arrive_while_the_request_still_runs(rest: RestNode) -> None:
    await rest.create("t")
    pieces: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def body() -> AsyncIterator[bytes]:
        while (piece := await pieces.get()) is not None:
            yield piece

    await pieces.put(b'{"value": {"type": "STRING", "data": "a"}} {"value": {"type": "STR')
    async with rest.session.post(f"{rest.url}{base(rest)}/topics/t/records", data=body(), headers=JSON) as response:
        first = json.loads(await response.content.readline())
        await pieces.put(b'ING", "data": "b"}}')
        second = json.loads(await response.content.readline())
        await pieces.put(b"nonsense}")
        await pieces.put(None)
        last = json.loads(await response.content.readline())

    assert (first["offset"], second["offset"]) == (0, 1)
    assert last["error_code"] == 400


async def test_requests_without_a_whole_record_are_refused(rest: RestNode) -> None:
    await rest.create("t")
    path = f"{base(rest)}/topics/t/records"
    empty = await rest.post(path, b"", headers=JSON)
    cut = await rest.post(path, b'{"value": ', headers=JSON)
    kind = await rest.post(path, b"{}", headers={"Content-Type": "text/plain"})
    nowhere = await rest.post(f"{base(rest)}/topics/u/records", b"{}", headers=JSON)

    assert (empty.status, empty.body["error_code"]) == (422, 42206)
    assert [answer.status for answer in (cut, kind, nowhere)] == [400, 415, 404]


def test_objects_are_parsed_whole_however_their_bytes_are_split() -> None:
    values = [{"a": 'ü\\"}{', "b": [1.5, True, None]}, {}, {"c": {"d": "x" * 50}}]
    octets = " \n".join(json.dumps(value, ensure_ascii=False) for value in values).encode()
    for size in (1, 2, 3, 7, 1000):
        objects = Objects(1000, 1000)
        found = [object_ for at in range(0, len(octets), size) for object_ in objects.feed(octets[at : at + size])]
        objects.end()

        assert found == values


def test_malformed_and_endless_objects_are_refused() -> None:
    with pytest.raises(Problem, match="JSON"):
        list(Objects(100, 100).feed(b'{"a": nope, "b": "long enough"}'))
    with pytest.raises(TooLarge):
        list(Objects(100, 100).feed(b'{"a": "' + bytes(200).replace(b"\0", b"x")))


async def test_groups_and_their_lag_are_reported(rest: RestNode) -> None:
    await rest.create("t")
    await produce(rest, b'{"value": {"type": "STRING", "data": "a"}}' * 5)
    key = (await rest.streams.catalog.find("t")).partition(0)
    await rest.streams.groups.commit(ref("g", "", None, -1), {key: CommittedOffset(offset=2)})
    consumer = (await rest.post("/consumers/live", {"auto.offset.reset": "earliest"})).body["base_uri"]
    await rest.post(f"{consumer}/subscription", {"topics": ["t"]})
    await rest.get(f"{consumer}/records", headers={"Accept": "*/*"})
    await rest.post(f"{consumer}/offsets")
    groups = f"{base(rest)}/consumer-groups"
    listed = (await rest.get(groups)).body["data"]
    members = (await rest.get(f"{groups}/live/consumers")).body["data"]
    lag = (await rest.get(f"{groups}/g/lags/t/partitions/0")).body
    summary = (await rest.get(f"{groups}/g/lag-summary")).body
    own = (await rest.get(f"{groups}/live/lags")).body["data"]

    assert [(group["consumer_group_id"], group["state"]) for group in listed] == [("g", "EMPTY"), ("live", "STABLE")]
    assert (lag["current_offset"], lag["log_end_offset"], lag["lag"]) == (2, 5, 3)
    assert (summary["max_lag"], summary["total_lag"]) == (3, 3)
    assert [consumer["consumer_id"] for consumer in own] == [member["consumer_id"] for member in members]
    assert own[0]["lag"] == 0
    assert (await rest.get(f"{groups}/none")).status == 404


class CountingDecoder(json.JSONDecoder):
    """A decoder that counts its calls."""

    count = 0

    def raw_decode(self, s: str, idx: int = 0) -> tuple[Any, int]:
        self.count += 1
        return super().raw_decode(s, idx)


def test_an_object_in_many_pieces_is_parsed_once() -> None:
    objects, decoder = Objects(1_000_000, 250_000), CountingDecoder()
    objects._decoder = decoder  # noqa: SLF001 - counts how often the text is parsed
    value = {"a": [{"b": f'}}"{at}\\'} for at in range(500)]}
    body = json.dumps(value).encode()
    found = [object_ for at in range(0, len(body), 7) for object_ in objects.feed(body[at : at + 7])]
    objects.end()

    assert found == [value]
    assert decoder.count == 1
