"""/v1/stream beyond the conformance suite: other protocols' records, partitions, Last-Event-ID, several servers."""

import asyncio
import json
import socket
from typing import Any

import aiohttp
import pytest

from bearlake.metadata.model import NamedProducer
from bearlake.protocols.rest.tailing import sequences
from bearlake.protocols.rest.tailing.producers import Claim, Decision, decide
from bearlake.streams.principal import INTERNAL
from bearlake.telemetry import metrics
from fixtures.rest_server import MakeServers, RestNode

JSON = {"Content-Type": "application/json"}


async def events(response: aiohttp.ClientResponse, count: int) -> list[tuple[str, str, str]]:
    """(event, id, data) of the next events."""
    found: list[tuple[str, str, str]] = []
    while len(found) < count:
        block = (await response.content.readuntil(b"\n\n")).decode()
        fields: dict[str, list[str]] = {}
        for line in block.strip().split("\n"):
            name, _, value = line.partition(":")
            fields.setdefault(name, []).append(value)
        if "event" in fields:
            found.append((fields["event"][0].strip(), fields["id"][0].strip(), "\n".join(fields["data"])))
    return found


async def test_records_of_other_protocols_are_values_here(rest: RestNode) -> None:
    await rest.create("t", 2)
    records = [{"key": "YQ==", "value": "eA=="}, {"value": None}, {"value": "eQ=="}]
    await rest.post("/topics/t/partitions/1", {"records": records}, kind="binary")
    whole = await rest.get("/v1/stream/t/1")
    rest_of_it = await rest.get(f"/v1/stream/t/1?offset={1:020}")
    ambiguous = await rest.get("/v1/stream/t")

    assert (whole.status, whole.body) == (200, b"xy")
    assert whole.headers["Stream-Next-Offset"] == f"{3:020}"
    assert whole.headers["Content-Type"] == "application/octet-stream"
    assert rest_of_it.body == b"y"
    assert ambiguous.status == 400
    assert (await rest.get("/v1/stream/t/2")).status == 404
    assert (await rest.get(f"/v1/stream/t/1?offset={9:020}")).status == 400


async def test_appends_are_records_for_other_protocols(rest: RestNode) -> None:
    await rest.put("/v1/stream/t", b"", headers=JSON)
    await rest.post("/v1/stream/t", b'[{"a": 1}, "\xc3\xbc"]', headers=JSON)
    await rest.post("/consumers/g", {"name": "c", "format": "json", "auto.offset.reset": "earliest"})
    base = "/consumers/g/instances/c"
    await rest.post(f"{base}/subscription", {"topics": ["t"]})
    answer = await rest.get(f"{base}/records", headers={"Accept": "application/vnd.kafka.json.v2+json"})

    assert [(record["offset"], record["value"]) for record in answer.body] == [(0, {"a": 1}), (1, "ü")]


async def test_events_continue_after_the_last_event_id(rest: RestNode) -> None:
    await rest.put("/v1/stream/t", b"[1,2,3]", headers=JSON)
    url = f"{rest.url}/v1/stream/t?offset=-1&live=sse"
    async with rest.session.get(url, headers={"Last-Event-ID": f"{2:020}"}) as response:
        old = await events(response, 2)
        await rest.post("/v1/stream/t", b"4", headers=JSON)
        new = await events(response, 2)

    assert old[0] == ("data", f"{3:020}", "[3]")
    assert new[0] == ("data", f"{4:020}", "[4]")
    assert json.loads(new[1][2])["streamNextOffset"] == f"{4:020}"


async def test_events_end_when_another_server_closes_the_stream(rest_servers: MakeServers) -> None:
    first_server, second_server = await rest_servers(2)
    await first_server.put("/v1/stream/t", b"a", headers={"Content-Type": "text/plain"})
    async with second_server.session.get(f"{second_server.url}/v1/stream/t?offset=-1&live=sse") as response:
        first = await events(response, 2)
        await first_server.post(
            "/v1/stream/t", b" b\nc", headers={"Content-Type": "text/plain", "Stream-Closed": "true"}
        )
        rest: list[Any] = []
        while not rest or "streamClosed" not in rest[-1][2]:
            rest += await events(response, 1)
        end = await response.content.read()

    assert first[0][2] == "a"
    assert [data for kind, _, data in rest if kind == "data"] == ["  b\nc"]  # the first space is the format's
    assert end == b""


async def test_a_client_that_does_not_read_costs_a_bounded_buffer_and_is_given_up(rest_servers: MakeServers) -> None:
    (rest,) = await rest_servers(1, write_timeout_ms=300)
    await rest.put("/v1/stream/t", b"", headers=JSON)
    chunk = json.dumps(["x" * 65_536] * 8).encode()
    for _ in range(64):
        assert (await rest.post("/v1/stream/t", chunk, headers=JSON)).status == 204
    sent = metrics.REST_RECORDS.labels("out")
    before = sent.value
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        host, _, port = rest.server.endpoints["rest"].rpartition(":")
        await asyncio.get_running_loop().sock_connect(client, (host, int(port)))
        head = b"GET /v1/stream/t?offset=-1&live=sse HTTP/1.1\r\nHost: bearlake\r\n\r\n"
        await asyncio.get_running_loop().sock_sendall(client, head)
        while not rest.server.open_count:  # noqa: ASYNC110 - until the request is under way
            await asyncio.sleep(0)
        while rest.server.connection_count > 1 or rest.server.open_count:  # noqa: ASYNC110 - until it is given up
            await asyncio.sleep(0)

    assert 0 < (sent.value - before) * 65_536 < 16 * 1024 * 1024  # of 32 MiB; most of it in the kernel's buffers


async def test_a_long_poll_ends_at_once_when_the_server_drains(rest_servers: MakeServers) -> None:
    (rest,) = await rest_servers(1)
    await rest.put("/v1/stream/t", b"", headers=JSON)
    waiting = asyncio.create_task(rest.get("/v1/stream/t?offset=-1&live=long-poll"))
    while not rest.server.open_count:  # noqa: ASYNC110 - until the request is under way
        await asyncio.sleep(0)
    await rest.server.drain(10_000)
    answer = await waiting

    assert (answer.status, answer.headers["Connection"]) == (204, "close")


async def test_a_retry_after_a_client_went_away_is_a_duplicate(rest: RestNode) -> None:
    await rest.put("/v1/stream/t", b"", headers=JSON)
    headers = {**JSON, "Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    request = asyncio.create_task(rest.post("/v1/stream/t", b"1", headers=headers))
    while not rest.server.open_count:  # noqa: ASYNC110 - until the request is under way
        await asyncio.sleep(0)
    request.cancel()  # the connection is closed while the append is under way, or before it
    await asyncio.gather(request, return_exceptions=True)
    retries = [await rest.post("/v1/stream/t", b"1", headers=headers) for _ in range(2)]

    assert retries[0].status in (200, 204)
    assert retries[1].status == 204
    assert (await rest.get("/v1/stream/t")).body == [1]


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        (Claim("p", 1, 3), Decision.ACCEPT),
        (Claim("p", 1, 2), Decision.DUPLICATE),
        (Claim("p", 1, 0), Decision.DUPLICATE),
        (Claim("p", 1, 4), Decision.GAP),
        (Claim("p", 0, 3), Decision.STALE_EPOCH),
        (Claim("p", 2, 0), Decision.ACCEPT),
        (Claim("p", 2, 3), Decision.EPOCH_STARTS_AT_ZERO),
        (Claim("q", 7, 0), Decision.ACCEPT),
        (Claim("q", 0, 1), Decision.GAP),
    ],
)
def test_appends_of_producers_are_decided_by_epoch_and_sequence(claim: Claim, expected: Decision) -> None:
    known = {"p": NamedProducer(7, 1, 2, 0)}

    assert decide(claim, known.get(claim.id, NamedProducer(8, -1, -1, 0))) is expected


def producer(epoch: int, sequence: int) -> dict[str, str]:
    return {**JSON, "Producer-Id": "Träger/1", "Producer-Epoch": str(epoch), "Producer-Seq": str(sequence)}


async def test_producers_are_known_to_all_servers_and_after_a_restart(rest_servers: MakeServers) -> None:
    first_server, second_server = await rest_servers(2)
    await first_server.put("/v1/stream/t", b"", headers=JSON)
    first = await first_server.post("/v1/stream/t", b"[0,0.5]", headers=producer(0, 0))
    again = await second_server.post("/v1/stream/t", b"[0,0.5]", headers=producer(0, 0))
    gap = await second_server.post("/v1/stream/t", b"[9]", headers=producer(0, 2))
    after = await second_server.post("/v1/stream/t", b"[1]", headers=producer(0, 1))
    late = await first_server.post("/v1/stream/t", b"[0,0.5]", headers=producer(0, 0))
    (third_server,) = await rest_servers(1)  # as a restarted server, which knows only the stores
    fresh = await third_server.post("/v1/stream/t", b"[1]", headers=producer(0, 1))
    wrong = await third_server.post("/v1/stream/t", b"[2]", headers=producer(1, 5))
    newer = await third_server.post("/v1/stream/t", b"[2]", headers=producer(1, 0))
    zombie = await first_server.post("/v1/stream/t", b"[9]", headers=producer(0, 2))

    assert [answer.status for answer in (first, again, gap, after, late)] == [200, 204, 409, 200, 204]
    assert (gap.headers["Producer-Expected-Seq"], gap.headers["Producer-Received-Seq"]) == ("1", "2")
    assert late.headers["Producer-Seq"] == "1"
    assert [answer.status for answer in (fresh, wrong, newer, zombie)] == [204, 400, 200, 403]
    assert zombie.headers["Producer-Epoch"] == "1"
    assert (await second_server.get("/v1/stream/t")).body == [
        0,
        0.5,
        1,
        2,
    ]  # a sequence is that of an append, not of a record


async def test_a_producer_s_appends_are_in_flight_together_and_keep_their_order(rest: RestNode) -> None:
    await rest.put("/v1/stream/t", b"", headers=JSON)
    session_order = [
        asyncio.create_task(rest.post("/v1/stream/t", b"[%d]" % n, headers=producer(0, n))) for n in range(8)
    ]
    answers = await asyncio.gather(*session_order)
    sequence = next((n for n, answer in enumerate(answers) if answer.status != 200), 8)
    for n in range(sequence, 8):  # appends on separate connections may overtake others
        assert (await rest.post("/v1/stream/t", b"[%d]" % n, headers=producer(0, n))).status in (200, 204)

    assert {answer.status for answer in answers} <= {200, 409}
    assert (await rest.get("/v1/stream/t")).body == list(range(8))


async def test_the_same_append_at_two_servers_at_once_is_done_once(rest_servers: MakeServers) -> None:
    first, second = await rest_servers(2)
    await first.put("/v1/stream/t", b"", headers=JSON)
    for n in range(20):
        both = [server.post("/v1/stream/t", b"[%d]" % n, headers=producer(0, n)) for server in (first, second)]
        assert sorted(answer.status for answer in await asyncio.gather(*both)) == [200, 204]

    assert (await first.get("/v1/stream/t")).body == list(range(20))


async def test_a_close_is_done_once_for_all_servers(rest_servers: MakeServers) -> None:
    first, second = await rest_servers(2)
    await first.put("/v1/stream/t", b"", headers=JSON)
    closing = {**producer(0, 0), "Stream-Closed": "true"}
    closed = await first.post("/v1/stream/t", b"[0]", headers=closing)
    await second.streams.catalog.refresh([(await first.streams.catalog.find("t")).stream.number])
    again = await second.post("/v1/stream/t", b"[0]", headers=closing)
    other = await second.post("/v1/stream/t", b"[1]", headers=producer(0, 1))
    bare = await second.post("/v1/stream/t", headers={"Stream-Closed": "true"})

    assert [answer.status for answer in (closed, again, other, bare)] == [200, 204, 409, 204]
    assert {answer.headers["Stream-Closed"] for answer in (closed, again, other, bare)} == {"true"}
    assert {answer.headers["Stream-Next-Offset"] for answer in (closed, again, other, bare)} == {f"{1:020}"}


async def test_an_append_while_another_server_closes_is_before_the_end_or_refused(rest_servers: MakeServers) -> None:
    first, second = await rest_servers(2)
    for turn in range(20):
        path = f"/v1/stream/t{turn}"
        await first.put(path, b"", headers=JSON)
        appends = [second.post(path, b"[%d]" % n, headers=JSON) for n in range(4)]
        closed, *appended = await asyncio.gather(first.post(path, headers={"Stream-Closed": "true"}), *appends)
        end = int(closed.headers["Stream-Next-Offset"])
        seen = (await first.get(path)).body
        kept = [n for n, answer in enumerate(appended) if answer.status == 204]

        assert {answer.status for answer in appended} <= {204, 409}
        assert sorted(seen) == kept
        assert all(answer.headers["Stream-Next-Offset"] == f"{end:020}" for answer in appended if answer.status == 409)
        assert len(seen) == end


async def test_records_that_other_protocols_write_after_the_end_are_not_read_here(rest: RestNode) -> None:
    await rest.put("/v1/stream/t", b"[0]", headers={**JSON, "Stream-Closed": "true"})
    await rest.post("/topics/t", {"records": [{"value": 1}]}, kind="json")
    seen = await rest.get("/v1/stream/t")

    assert (seen.body, seen.headers["Stream-Closed"]) == ([0], "true")
    assert (await rest.ask("HEAD", "/v1/stream/t")).headers["Stream-Next-Offset"] == f"{1:020}"


async def test_an_append_of_a_producer_that_was_cut_off_before_its_close_is_closed_by_the_retry(rest: RestNode) -> None:
    await rest.put("/v1/stream/t", b"", headers=JSON)
    await rest.post("/v1/stream/t", b"[0]", headers=producer(0, 0))  # the close did not happen
    again = await rest.post("/v1/stream/t", b"[0]", headers={**producer(0, 0), "Stream-Closed": "true"})

    assert (again.status, again.headers["Stream-Closed"]) == (204, "true")
    assert (await rest.get("/v1/stream/t")).headers["Stream-Closed"] == "true"


@pytest.mark.parametrize("name", ["", "x" * 1_001])
async def test_a_producer_without_a_good_name_is_refused(rest: RestNode, name: str) -> None:
    await rest.put("/v1/stream/t", b"", headers=JSON)
    headers = {**JSON, "Producer-Id": name, "Producer-Epoch": "0", "Producer-Seq": "0"}

    assert (await rest.post("/v1/stream/t", b"[0]", headers=headers)).status == 400


async def test_a_producer_s_append_is_one_batch_or_too_large(rest: RestNode) -> None:
    await rest.create("t", http_content_type="application/json", max_message_bytes="1000")
    large = json.dumps([1] * 200).encode()
    refused = await rest.post("/v1/stream/t", large, headers=producer(0, 0))
    plain = await rest.post("/v1/stream/t", large, headers=JSON)

    assert (refused.status, plain.status) == (413, 204)
    assert (await rest.post("/v1/stream/t", b"[0]", headers=producer(0, 0))).status == 200
    assert len((await rest.get("/v1/stream/t")).body) == 201


def in_sequence(sequence: str, **more: str) -> dict[str, str]:
    return {**JSON, "Stream-Seq": sequence, **more}


async def test_stream_seq_grows_whatever_server_takes_the_append(rest_servers: MakeServers) -> None:
    first_server, second_server = await rest_servers(2)
    await first_server.create("t", http_content_type="application/json")
    await first_server.post("/topics/t", {"records": [{"value": "of Kafka"}]}, kind="json")
    first = await first_server.post("/v1/stream/t", b'["b"]', headers=in_sequence("b"))
    same = await second_server.post("/v1/stream/t", b'["b"]', headers=in_sequence("b"))
    less = await second_server.post("/v1/stream/t", b'["a"]', headers=in_sequence("a"))
    await first_server.post("/topics/t", {"records": [{"value": "again"}]}, kind="json")
    more = await second_server.post("/v1/stream/t", b'["\xc3\xa4"]', headers={**JSON, "Stream-Seq": "ä"})
    (third_server,) = await rest_servers(1)  # as a server that was restarted
    late = await third_server.post("/v1/stream/t", b'["z"]', headers=in_sequence("z"))
    plain = await third_server.post("/v1/stream/t", b'["plain"]', headers=JSON)

    assert [answer.status for answer in (first, same, less, more, late, plain)] == [204, 409, 409, 204, 409, 204]
    assert (await first_server.get("/v1/stream/t")).body == ["of Kafka", "b", "again", "ä", "plain"]


async def test_two_servers_accept_only_one_append_with_the_same_stream_seq(rest_servers: MakeServers) -> None:
    first, second = await rest_servers(2)
    await first.put("/v1/stream/t", b"", headers=JSON)
    for n in range(100, 115):
        both = [server.post("/v1/stream/t", b"[%d]" % n, headers=in_sequence(str(n))) for server in (first, second)]
        assert sorted(answer.status for answer in await asyncio.gather(*both)) == [204, 409]

    assert (await first.get("/v1/stream/t")).body == list(range(100, 115))


async def test_a_producer_s_retry_with_stream_seq_is_a_duplicate_not_a_conflict(rest_servers: MakeServers) -> None:
    first, second = await rest_servers(2)
    await first.put("/v1/stream/t", b"", headers=JSON)
    headers = producer(0, 0) | {"Stream-Seq": "a"}
    answers = [await server.post("/v1/stream/t", b"[1]", headers=headers) for server in (first, second, first)]
    old = await second.post("/v1/stream/t", b"[2]", headers=producer(0, 1) | {"Stream-Seq": "a"})
    new = await second.post("/v1/stream/t", b"[2]", headers=producer(0, 1) | {"Stream-Seq": "b"})

    assert [answer.status for answer in answers] == [200, 204, 204]
    assert (old.status, new.status) == (409, 200)
    assert (await first.get("/v1/stream/t")).body == [1, 2]


async def test_the_stored_stream_seq_outlives_its_records(rest_servers: MakeServers, monkeypatch: Any) -> None:
    monkeypatch.setattr(sequences, "_STORE_STEP", 2)
    (first,) = await rest_servers(1)
    await first.put("/v1/stream/t", b"", headers=JSON)
    for name in "abcd":
        await first.post("/v1/stream/t", b"[0]", headers=in_sequence(name))
    noted = json.loads((await first.streams.catalog.find("t")).stream.configs["http.sequences"])
    await first.streams.trim(INTERNAL, "t", 0, 4)
    (second,) = await rest_servers(1)
    old = await second.post("/v1/stream/t", b"[0]", headers=in_sequence("b"))

    assert noted == {"0": [2, "b"]}
    assert old.status == 409


async def test_a_config_of_stream_seq_that_another_program_wrote_is_replaced(rest: RestNode) -> None:
    await rest.create("t", http_content_type="application/json", http_sequences="[1]")
    answers = [await rest.post("/v1/stream/t", b"[0]", headers=in_sequence(name)) for name in ("b", "a")]

    assert [answer.status for answer in answers] == [204, 409]
