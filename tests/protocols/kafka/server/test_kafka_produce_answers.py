"""When an answer to Produce requests is sent: at once if the client waits for nothing else, otherwise in order and with other answers."""

import asyncio

import pytest

from bearlake.metadata.quotas import QuotaChange, QuotaKey
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.rounds import SendRounds
from bearlake.protocols.kafka.settings import KafkaSettings
from bearlake.protocols.kafka.slot import Slot
from bearlake.telemetry import metrics
from fixtures.kafka_server import batch_of, produce_request
from fixtures.quotas import ANYBODY
from protocols.kafka.server.test_kafka_produce_pipelined import answers_to


@pytest.fixture
async def connection(kafka, monkeypatch):
    """A connection that has no requests. `written` has the chunks of each write."""
    await kafka.client("c")
    (found,) = kafka.server.connections
    written = []
    monkeypatch.setattr(found, "_write", lambda transport, chunks, size: written.append(list(chunks)))
    found.written = written
    return found


def taken(connection, count=1):
    """Requests that were taken together, as if by the connection."""
    place = Slot(ApiKey.PRODUCE, count)
    connection.add(place)
    return place


async def test_the_only_answer_is_sent_in_the_same_turn_and_counted(connection):
    seconds = metrics.KAFKA_REQUEST_SECONDS.labels("PRODUCE")
    before, place = seconds.count, taken(connection, 3)

    connection.answer_produced(place, b"answer")

    assert connection.written == [[b"answer"]]
    assert seconds.count == before + 3
    await asyncio.sleep(0)
    assert connection.written == [[b"answer"]]
    connection.close_if_idle()
    assert not connection.is_open


async def test_answers_to_requests_of_several_reads_share_a_write(connection):
    first, second = taken(connection), taken(connection)

    connection.answer_produced(first, b"first")
    connection.answer_produced(second, b"second")
    assert connection.written == []
    await asyncio.sleep(0)

    assert connection.written == [[b"first", b"second"]]


async def test_an_answer_waits_for_the_answer_to_an_earlier_request(connection):
    earlier, place = taken(connection), taken(connection)

    connection.answer_produced(place, b"answer")
    await asyncio.sleep(0)
    assert connection.written == []
    connection.answer(earlier, [b"earlier"])
    await asyncio.sleep(0)

    assert connection.written == [[b"earlier", b"answer"]]


async def test_an_answer_waits_for_a_client_that_does_not_read(connection):
    place = taken(connection)
    connection.pause_writing()

    connection.answer_produced(place, b"answer")
    await asyncio.sleep(0)
    assert connection.written == []
    connection.resume_writing()

    assert connection.written == [[b"answer"]]


async def test_an_answer_to_a_client_that_has_gone_is_dropped(connection):
    place = taken(connection)
    connection.close("the test closes it", "test")

    connection.answer_produced(place, b"answer")
    await asyncio.sleep(0)

    assert connection.written == []


async def test_a_connection_that_takes_one_request_at_a_time_reads_on_after_each_answer(kafka_cluster):
    cluster = await kafka_cluster(1, settings=KafkaSettings(requests_in_flight_max=1))
    await cluster[0].create("t")
    client = await cluster[0].client("c")

    answers = await answers_to(client, [produce_request("t", batch_of(b"%d" % number)) for number in range(20)])

    assert answers == [(0, number) for number in range(20)]


async def test_an_answer_whose_time_a_quota_may_charge_is_sent_in_a_round(kafka, connection):
    await kafka.streams.quotas.change([QuotaChange(ANYBODY, QuotaKey.PRODUCER_BYTE_RATE, 1e12)])
    place = taken(connection)

    connection.answer_produced(place, b"answer")
    assert connection.written == []
    await asyncio.sleep(0)

    assert connection.written == [[b"answer"]]


async def test_a_connection_whose_login_has_ended_closes_after_its_only_answer(connection):
    place = taken(connection)
    connection._end_login()  # noqa: SLF001 - what a certificate's end calls
    assert connection.is_open

    connection.answer_produced(place, b"answer")
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert connection.written == [[b"answer"]]
    assert not connection.is_open


async def test_a_client_with_one_request_at_a_time_causes_no_round_of_answers(kafka_cluster, monkeypatch):
    cluster = await kafka_cluster(1, settings=KafkaSettings(requests_in_flight_max=2))
    await cluster[0].create("t")
    client = await cluster[0].client("c")
    request = produce_request("t", batch_of(b"v"))
    await answers_to(client, [request, request])
    sends, add = [], SendRounds.add

    def add_noted(rounds, loop, send):
        sends.append(send)
        add(rounds, loop, send)

    monkeypatch.setattr(SendRounds, "add", add_noted)

    answers = [await answers_to(client, [request]) for _ in range(4)]

    assert answers == [[(0, 2 + number)] for number in range(4)]
    assert sends == []
