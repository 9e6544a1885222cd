"""What REST clients see of Kafka's transactions: only committed records, and an end that a reader can reach."""

from fixtures.rest_consumer import Client, values
from fixtures.rest_server import RestNode
from fixtures.transactional import TransactionalWriter

TEXT = {"Content-Type": "text/plain"}


async def test_a_read_ends_at_an_open_transaction_and_says_that_it_is_up_to_date(rest: RestNode) -> None:
    await rest.put("/v1/stream/t", b"a", headers=TEXT)
    writer = await TransactionalWriter.of(rest.streams, "t")
    await writer.aborted(b"x")
    await writer.send(b"b")
    own = await rest.post("/v1/stream/t", b"c", headers=TEXT)
    whole = await rest.get("/v1/stream/t")
    now = await rest.get("/v1/stream/t?offset=now")
    head = await rest.ask("HEAD", "/v1/stream/t")
    behind = await rest.get(f"/v1/stream/t?offset={own.headers['Stream-Next-Offset']}")
    await writer.end()

    assert (whole.body, whole.headers["Stream-Up-To-Date"]) == (b"a", "true")
    places = {answer.headers["Stream-Next-Offset"] for answer in (whole, now, head)}
    assert places == {f"{3:020}"}
    assert (behind.status, behind.body) == (200, b"")
    assert (await rest.get(f"/v1/stream/t?offset={3:020}")).body == b"bc"


async def test_a_closed_stream_with_an_open_transaction_has_not_ended(rest: RestNode) -> None:
    await rest.put("/v1/stream/t", b"a", headers=TEXT)
    writer = await TransactionalWriter.of(rest.streams, "t")
    await writer.send(b"b")
    await rest.post("/v1/stream/t", b"c", headers={**TEXT, "Stream-Closed": "true"})
    before = await rest.get("/v1/stream/t")
    await writer.end()
    after = await rest.get(f"/v1/stream/t?offset={before.headers['Stream-Next-Offset']}")

    assert before.body == b"a"
    assert "Stream-Closed" not in before.headers
    assert (after.body, after.headers["Stream-Closed"]) == (b"bc", "true")


async def test_an_append_with_a_sequence_does_not_wait_for_an_open_transaction(rest: RestNode) -> None:
    await rest.put("/v1/stream/t", b"", headers=TEXT)
    first = await rest.post("/v1/stream/t", b"a", headers={**TEXT, "Stream-Seq": "1"})
    writer = await TransactionalWriter.of(rest.streams, "t")
    await writer.send(b"b")
    second = await rest.post("/v1/stream/t", b"c", headers={**TEXT, "Stream-Seq": "2"})
    repeated = await rest.post("/v1/stream/t", b"c", headers={**TEXT, "Stream-Seq": "2"})
    await writer.end()

    assert (first.status, second.status, repeated.status) == (204, 204, 409)


async def test_a_consumer_from_the_latest_record_on_gets_what_is_committed_later(rest: RestNode) -> None:
    await rest.create("t")
    writer = await TransactionalWriter.of(rest.streams, "t")
    await writer.send(b"b")
    client = await Client.create(rest, "g", **{"auto.offset.reset": "latest"})
    await client.subscribe("t")
    nothing = values(await client.poll(wait_ms=100))
    await writer.end()

    assert nothing == []
    assert values(await client.poll()) == [b"b"]


async def test_offsets_and_lags_end_at_the_last_stable_offset(rest: RestNode) -> None:
    await rest.create("t")
    client = await Client.create(rest, "g", **{"auto.offset.reset": "earliest"})
    await client.subscribe("t")
    writer = await TransactionalWriter.of(rest.streams, "t")
    await writer.aborted(b"x")
    await writer.send(b"b")
    await client.poll(wait_ms=100)
    assert (await rest.post(f"{client.base}/offsets")).status == 200
    cluster = (await rest.get("/v3/clusters")).body["data"][0]["cluster_id"]
    lag = (await rest.get(f"/v3/clusters/{cluster}/consumer-groups/g/lags/t/partitions/0")).body
    offsets = (await rest.get("/topics/t/partitions/0/offsets")).body

    assert (lag["current_offset"], lag["log_end_offset"], lag["lag"]) == (2, 2, 0)
    assert offsets == {"beginning_offset": 0, "end_offset": 2}
