"""What clients leave unread is bounded, also over TLS, and also if it waits behind another request."""

from pathlib import Path

from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.settings import KafkaSettings
from bearlake.telemetry import metrics
from fixtures.kafka_server import Make, batch_of, fetch_request, values_of
from fixtures.slow_clients import check_until, tls_of
from fixtures.waiting import until

MIB = 1024 * 1024


async def test_clients_that_read_nothing_over_tls_cannot_hold_more_than_twice_the_limit(
    kafka_cluster: Make, certificates: dict[str, Path]
) -> None:
    """Each asks for one answer only, so its connection never writes again."""
    settings = KafkaSettings(unsent_bytes_max=8 * MIB, stall_ms=600_000)
    listener, context = tls_of(certificates)
    kafka = (await kafka_cluster(1, settings=settings, listeners=[listener]))[0]
    await kafka.create("t", max_message_bytes=str(8 * MIB))
    writer = await kafka.client(tls=context)
    await writer.produce("t", batch_of(bytes(7 * MIB)))
    closed = metrics.KAFKA_CONNECTIONS_REFUSED.labels("slow_reader")
    closed_before = closed.value
    for _ in range(10):
        (await kafka.client_not_reading(context)).send(fetch_request([("t", 0, 0)]), 12)

    await until(lambda: closed.value - closed_before >= 4)

    assert kafka.server.context.slow_readers.unread_bytes <= 2 * settings.unsent_bytes_max
    reader = await kafka.client(tls=context)
    assert values_of((await reader.fetch("t", 0)).records) == [(0, bytes(7 * MIB))]


async def test_a_client_that_reads_nothing_over_tls_is_closed_after_the_stall_time(
    kafka_cluster: Make, certificates: dict[str, Path]
) -> None:
    listener, context = tls_of(certificates)
    kafka = (await kafka_cluster(1, listeners=[listener]))[0]
    await kafka.create("t", max_message_bytes=str(8 * MIB))
    writer = await kafka.client(tls=context)
    await writer.produce("t", batch_of(bytes(7 * MIB)))
    (await kafka.client_not_reading(context)).send(fetch_request([("t", 0, 0)]), 12)
    closed = metrics.KAFKA_CONNECTIONS_REFUSED.labels("slow_reader")
    closed_before = closed.value
    await until(lambda: len(kafka.server.context.slow_readers) == 1)

    await check_until(lambda: closed.value > closed_before, kafka.server.connections, KafkaSettings().stall_ms)

    await until(lambda: kafka.server.context.slow_readers.unread_bytes == 0)


async def test_answers_that_wait_behind_a_request_of_their_own_client_count(kafka_cluster: Make) -> None:
    """The first request of each client waits for records; the answers to those behind it are complete."""
    settings = KafkaSettings(unsent_bytes_max=MIB, stall_ms=600_000)
    kafka = (await kafka_cluster(1, settings=settings))[0]
    await kafka.create("t")
    await kafka.create("wide", 1_000)
    wide = m.MetadataRequest(topics=[m.MetadataRequest.Topic(name="wide")])
    for _ in range(6):
        client = await kafka.client()
        client.send(fetch_request([("t", 0, 0)], wait_ms=60_000, bytes_min=1), 12)
        for _ in range(20):
            client.send(wide, 12)

    await until(lambda: len(kafka.server.connections) < 6)

    assert kafka.server.context.slow_readers.unread_bytes <= 2 * settings.unsent_bytes_max
    # No metric counts answers that are complete and not written yet.
    held = sum(connection._ready_bytes for connection in kafka.server.connections)  # noqa: SLF001
    assert held <= 2 * settings.unsent_bytes_max


async def test_a_large_answer_does_not_hold_the_requests_that_it_waits_for(kafka_cluster: Make) -> None:
    """The records are ready before the requests in front of them, which run one after another, have begun."""
    kafka = (await kafka_cluster(1, settings=KafkaSettings(response_bytes_max=64 * 1024)))[0]
    await kafka.create("t")
    client = await kafka.client()
    await client.produce("t", batch_of(bytes(200_000)))

    for _ in range(20):
        client.send(m.MetadataRequest(topics=None), 12)
    client.send(fetch_request([("t", 0, 0)]), 12)
    answers = [await client.receive() for _ in range(21)]

    assert len(answers[-1].responses[0].partitions[0].records) > 200_000
