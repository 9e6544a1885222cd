"""What clients leave unread is bounded, also if it waits behind another request."""

from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.settings import KafkaSettings
from fixtures.kafka_server import Make, fetch_request
from fixtures.waiting import until

MIB = 1024 * 1024


async def test_answers_that_wait_behind_a_request_of_their_own_client_count(kafka_cluster: Make) -> None:
    """The first request of each client waits for records; the answers to those behind it are complete."""
    settings = KafkaSettings(unsent_bytes_max=4 * MIB, stall_ms=600_000)
    kafka = (await kafka_cluster(1, settings=settings))[0]
    await kafka.create("t")
    await kafka.create("wide", 4_000)
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
