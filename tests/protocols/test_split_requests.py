"""Requests are answered alike however their bytes arrive: whole, in one write with others, or in two parts, cut at any byte.

The server has read the first part before the second one is sent. gRPC is left out: its library joins the frames of HTTP/2 and passes on
whole messages.
"""

import asyncio
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable

import pytest

from bearlake import kernel
from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.codec import Message
from bearlake.protocols.pulsar import commands, framing
from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from bearlake.serving.http.handlers import GatedHandler
from bearlake.telemetry import metrics
from fixtures.kafka_server import Node, batch_of, fetch_request, key_of, produce_request
from fixtures.pulsar_server import PulsarClient, PulsarNode, message_bytes
from fixtures.rest_server import RestNode
from fixtures.waiting import WAIT_S


def test_the_twin_of_the_kernel_passes_these_tests() -> None:
    """In a process of its own: which kernel a process uses is decided at its start."""
    if not kernel.IS_NATIVE:
        return
    options = ["-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-k", "every_byte"]
    words = [sys.executable, "-m", "pytest", *options, __file__]
    twin = os.environ | {"BEARLAKE_KERNEL": "skip"}
    done = subprocess.run(words, env=twin, capture_output=True, text=True, timeout=2 * WAIT_S, check=False)

    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


async def send_cut(writer: asyncio.StreamWriter, request: bytes, cut: int, received_bytes: Callable[[], float]) -> None:
    """Send `request` in two parts; the server has read the first `cut` bytes before the others are sent."""
    before = received_bytes()
    writer.write(request[:cut])
    async with asyncio.timeout(WAIT_S):
        while received_bytes() < before + cut:  # noqa: ASYNC110 - the state that is waited for has no event
            await asyncio.sleep(0)
    writer.write(request[cut:])


# -- Kafka ---------------------------------------------------------------------------------------------------------


def kafka_frame(request: Message, version: int, correlation_id: int) -> bytes:
    return b"".join(codec.request(key_of(request), version).frame(correlation_id, "test", request))


async def kafka_answers(reader: asyncio.StreamReader, count: int) -> bytes:
    """The next `count` answers, as they are."""
    answers = b""
    async with asyncio.timeout(WAIT_S):
        for _ in range(count):
            size = await reader.readexactly(4)
            answers += size + await reader.readexactly(*struct.unpack(">i", size))
    return answers


async def test_kafka_requests_may_be_cut_and_joined_at_every_byte(kafka: Node) -> None:
    """The batches are the same each time: the second and later ones are duplicates, which get the first answer.

    A longer request before each cut leaves other bytes in the receive buffer than those that are missing.
    """
    await kafka.create("t")
    client = await kafka.client()
    produce = produce_request("t", batch_of(b"value", producer=(7, 0, 0)))
    requests = [
        kafka_frame(produce, 9, 1),
        kafka_frame(produce, 9, 2),
        kafka_frame(fetch_request([("t", 0, 0)]), 12, 3),
        kafka_frame(m.MetadataRequest(topics=[m.MetadataRequest.Topic(name="t")]), 12, 4),
        kafka_frame(produce, 9, 5),
    ]
    whole = b""
    for request in requests:
        client.writer.write(request)
        whole += await kafka_answers(client.reader, 1)
    joined = b"".join(requests)
    other = kafka_frame(m.MetadataRequest(topics=[m.MetadataRequest.Topic(name="!" * len(joined))]), 12, 6)

    client.writer.write(joined * 3)
    assert await kafka_answers(client.reader, 3 * len(requests)) == whole * 3
    for cut in range(1, len(joined)):
        client.writer.write(other)
        await kafka_answers(client.reader, 1)
        await send_cut(client.writer, joined, cut, lambda: metrics.KAFKA_RECEIVED_BYTES.value)
        assert await kafka_answers(client.reader, len(requests)) == whole, cut


# -- Pulsar --------------------------------------------------------------------------------------------------------


def pulsar_received_bytes() -> float:
    return metrics.PULSAR_RECEIVED_BYTES.value


def send_frame(sequence_id: int) -> bytes:
    """A SEND whose size does not depend on `sequence_id`, if that has two bytes as a varint."""
    body = pb.CommandSend(producer_id=1, sequence_id=sequence_id)
    command = pb.BaseCommand(type=commands.NUMBERS["send"], send=body)
    return bytes(framing.message_frame(command, message_bytes(b"value", sequence_id)))


async def receipts(client: PulsarClient, count: int) -> list[tuple[int, int]]:
    """Sequence and entry of the next `count` answers to SENDs."""
    found = [await client.receive("send_receipt") for _ in range(count)]
    return [(receipt.sequence_id, receipt.message_id.entry_id) for receipt in found]


async def test_pulsar_messages_may_be_cut_and_joined_at_every_byte(pulsar: PulsarNode) -> None:
    client = await pulsar.client()
    await client.produce("t")
    first = 1_000
    for at in range(2):
        client.send_bytes(send_frame(first + at))
        assert await receipts(client, 1) == [(first + at, at)]
    client.send_bytes(send_frame(first + 2) + send_frame(first + 3) + send_frame(first + 4))
    assert await receipts(client, 3) == [(first + at, at) for at in (2, 3, 4)]

    at = 5
    for cut in range(1, 2 * len(send_frame(first))):
        joined = send_frame(first + at) + send_frame(first + at + 1)
        await send_cut(client.writer, joined, cut, pulsar_received_bytes)
        assert await receipts(client, 2) == [(first + at, at), (first + at + 1, at + 1)], cut
        at += 2


async def test_pulsar_commands_may_be_cut_and_joined_at_every_byte(pulsar: PulsarNode) -> None:
    """From the first command on, so each time on a new connection."""
    await pulsar.create("t")
    bodies = {
        "connect": pb.CommandConnect(client_version="test", protocol_version=20),
        "lookup": pb.CommandLookupTopic(topic="t", request_id=1),
    }
    requests = [
        bytes(framing.message_frame(pb.BaseCommand(type=commands.NUMBERS[name], **{name: body}), b""))
        for name, body in bodies.items()
    ]

    async def answers(client: PulsarClient) -> list[tuple[str, bytes]]:
        return [(name, body.SerializeToString()) for name, body, _ in [await client.receive_frame() for _ in bodies]]

    apart = await pulsar.silent_client()
    whole = []
    for request in requests:
        apart.send_bytes(request)
        name, body, _ = await apart.receive_frame()
        whole.append((name, body.SerializeToString()))
    joined = b"".join(requests)

    for cut in range(1, len(joined) + 1):
        client = await pulsar.silent_client()
        await send_cut(client.writer, joined, cut, pulsar_received_bytes)
        assert await answers(client) == whole, cut
        client.writer.transport.abort()


# -- REST ----------------------------------------------------------------------------------------------------------


async def http_answers(reader: asyncio.StreamReader, count: int) -> list[tuple[list[bytes], bytes]]:
    """Head lines, without the date, and body of the next `count` answers."""
    answers = []
    async with asyncio.timeout(WAIT_S):
        for _ in range(count):
            head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
            (length,) = [int(line.split(b":")[1]) for line in head if line.lower().startswith(b"content-length:")]
            lines = [line for line in head if not line.lower().startswith(b"date:")]
            answers.append((lines, await reader.readexactly(length)))
    return answers


async def test_http_requests_may_be_cut_and_joined_at_every_byte(
    rest: RestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request with a body of a known length, one in chunks, and one without a body."""
    received = 0
    feed = GatedHandler.data_received

    def data_received(handler: GatedHandler, data: bytes) -> None:
        nonlocal received
        received += len(data)
        feed(handler, data)

    monkeypatch.setattr(GatedHandler, "data_received", data_received)
    await rest.create("t", 2)
    body = json.dumps({"records": [{"value": "dmFsdWU=", "partition": 5}]}).encode()
    head = b"POST /topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/vnd.kafka.binary.v2+json\r\n"
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:7], body[7:])) + b"0\r\n\r\n"
    requests = [
        head + b"Content-Length: %d\r\n\r\n" % len(body) + body,
        head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks,
        b"GET /topics/t HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ]
    reader, writer = await asyncio.open_connection(*rest.server.endpoints["rest"].split(":"))
    whole = []
    for request in requests:
        writer.write(request)
        whole += await http_answers(reader, 1)
    joined = b"".join(requests)

    writer.write(joined * 2)
    assert await http_answers(reader, 2 * len(requests)) == whole * 2
    for cut in range(1, len(joined)):
        await send_cut(writer, joined, cut, lambda: received)
        assert await http_answers(reader, len(requests)) == whole, cut
    writer.close()
    await writer.wait_closed()
