# ruff: noqa: SLF001 - the socket is read, and requests run, at the step that the test says
"""Requests that their clients gave up while a server did not read them: the server finds them later, and must not execute them.

Since then the topic was deleted and created again. The request names a topic, so the server cannot tell the two apart.
"""

import asyncio
import logging

import pytest

from bearlake.metadata.model import StreamSpec
from bearlake.protocols.kafka import messages
from bearlake.streams.service import Streams
from fixtures import by_name
from fixtures.kafka_server import Make, until
from fixtures.rest_server import MakeServers

DELETE_TOPICS_VERSION = 5


async def create_anew(streams: Streams, name: str) -> int:
    """Another client deletes the topic and creates it again; the number of the new one."""
    await by_name.delete(streams.metadata, name)
    return (await by_name.create(streams.metadata, StreamSpec(name=name, partition_count=1))).number


async def numbers(streams: Streams, name: str) -> list[int]:
    """The incarnation of the topic, if there is one."""
    return [stream.number for stream in await streams.metadata.streams.list() if stream.name == name]


async def all_done(streams: Streams) -> None:
    """Wait until all writes that requests have begun are done: the store executes writes one after the other."""
    for number in range(3):
        await by_name.create(streams.metadata, StreamSpec(name=f"later-{number}", partition_count=1))
        await asyncio.sleep(0)


async def test_kafka_a_deletion_that_was_given_up_unread_leaves_the_next_topic_alone(kafka_cluster: Make) -> None:
    (node,) = (await kafka_cluster(1)).nodes
    await node.create("t")
    client = await node.client()
    await client.ask(messages.MetadataRequest(topics=None), version=12)
    (connection,) = node.server.connections
    connection._transport.pause_reading()
    client.send(messages.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), DELETE_TOPICS_VERSION)
    client.writer.close()
    await client.writer.wait_closed()
    anew = await create_anew(node.streams, "t")

    connection._transport.resume_reading()
    await until(lambda: not len(node.server.connections))
    await all_done(node.streams)

    assert await numbers(node.streams, "t") == [anew]


async def test_kafka_a_deletion_that_waits_for_another_request_ends_with_its_connection(kafka_cluster: Make) -> None:
    (node,) = (await kafka_cluster(1)).nodes
    await node.create("t")
    client = await node.client()
    await client.ask(messages.MetadataRequest(topics=None), version=12)
    (connection,) = node.server.connections
    connection._others._is_working = True  # as while another request of its lane is executed
    client.send(messages.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), DELETE_TOPICS_VERSION)
    await until(lambda: bool(connection._others.waiting))
    client.writer.close()
    await until(lambda: not len(node.server.connections))
    anew = await create_anew(node.streams, "t")

    connection._others._is_working = False
    connection._others.start_next()
    await all_done(node.streams)

    assert await numbers(node.streams, "t") == [anew]


@pytest.mark.parametrize("path", ["/v3/clusters/{cluster}/topics/t", "/v1/stream/t"], ids=["v3", "durable streams"])
async def test_http_a_deletion_that_was_given_up_unread_leaves_the_next_topic_alone(
    rest_servers: MakeServers, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    (node,) = await rest_servers(1)
    await node.create("t")
    cluster = (await node.get("/v3/clusters")).body["data"][0]["cluster_id"]
    reader, writer = await asyncio.open_connection(*node.server.endpoints["rest"].split(":"))
    writer.write(b"GET /v3/clusters HTTP/1.1\r\nHost: h\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    known = writer.get_extra_info("sockname")
    http = node.server._site._runner.server
    (held,) = [
        connection for connection in http.connections if connection.transport.get_extra_info("peername") == known
    ]
    held.transport.pause_reading()
    writer.write(f"DELETE {path.format(cluster=cluster)} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
    writer.close()
    await writer.wait_closed()
    anew = await create_anew(node.streams, "t")

    held.transport.resume_reading()
    await until(lambda: held not in http.connections)
    await all_done(node.streams)

    assert await numbers(node.streams, "t") == [anew]
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
