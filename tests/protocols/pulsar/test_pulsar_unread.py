"""What clients leave unread over TLS is bounded; `test_pulsar_hostile.py` has the same without TLS.

Each client asks for one message, so its connection never writes again. The kernel takes about half of the message.
"""

from pathlib import Path

from bearlake.protocols.pulsar.settings import PulsarSettings
from bearlake.telemetry import metrics
from fixtures.pulsar_server import Make, PulsarCluster
from fixtures.slow_clients import check_until, tls_of
from fixtures.waiting import until

MIB = 1024 * 1024


async def add_message(cluster: PulsarCluster) -> None:
    """Add a message of almost the largest size to `t`, through a server without TLS."""
    producer = await (await cluster.add()).client()
    await producer.produce("t")
    producer.send_message(bytes(5 * MIB - 1000))
    await producer.receive("send_receipt")


async def test_clients_that_read_nothing_over_tls_cannot_hold_more_than_the_limit(
    pulsar_cluster: Make, certificates: dict[str, Path]
) -> None:
    settings = PulsarSettings(unread_bytes_max=8 * MIB, stall_ms=600_000)
    listener, context = tls_of(certificates)
    cluster = await pulsar_cluster(1, settings=settings, listener=listener)
    await add_message(cluster)
    refused = metrics.PULSAR_CONNECTIONS_REFUSED.labels("slow_reader")
    refused_before = refused.value
    for at in range(12):
        (await cluster[0].client_not_reading("t", f"s-{at}", context)).flow(1)

    await until(lambda: refused.value - refused_before >= 3)

    assert cluster[0].server.connections.slow_readers.unread_bytes <= settings.unread_bytes_max


async def test_a_client_that_reads_nothing_over_tls_is_closed_after_the_stall_time(
    pulsar_cluster: Make, certificates: dict[str, Path]
) -> None:
    listener, context = tls_of(certificates)
    cluster = await pulsar_cluster(1, settings=PulsarSettings(unsent_bytes_max=64 * 1024), listener=listener)
    await add_message(cluster)
    refused = metrics.PULSAR_CONNECTIONS_REFUSED.labels("slow_reader")
    refused_before = refused.value
    connections = cluster[0].server.connections
    (await cluster[0].client_not_reading("t", "s", context)).flow(1)
    await until(lambda: len(connections.slow_readers) == 1)

    await check_until(lambda: refused.value > refused_before, connections, PulsarSettings().stall_ms)

    await until(lambda: connections.slow_readers.unread_bytes == 0)
