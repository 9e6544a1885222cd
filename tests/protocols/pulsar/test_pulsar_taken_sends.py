"""SENDs that the kernel takes into the open buffer: when it does, and that the others keep their place in the order."""

import zlib

import pytest

from bearlake import kernel
from bearlake.protocols.pulsar.proto.metadata_pb2 import ZLIB
from bearlake.protocols.pulsar.sends import TakenSends
from bearlake.streams.service import StreamsSettings
from bearlake.streams.writer_settings import WriterSettings
from fixtures.pulsar_server import Make, PulsarNode
from fixtures.waiting import until


def forbidden(*_: object) -> None:
    raise AssertionError("this must not be called")


@pytest.mark.parametrize("configs", [{}, {"pulsar_deduplication": "false"}])
async def test_common_sends_are_not_decided_by_python(
    pulsar: PulsarNode, monkeypatch: pytest.MonkeyPatch, configs: dict[str, str]
) -> None:
    await pulsar.create("t", **configs)
    client = await pulsar.client()
    for producer_id in (1, 2):
        await client.produce("t", producer_id)
    monkeypatch.setattr(kernel, "parse_sends", forbidden)

    for sequence_id in range(20):
        client.send_message(b"value", sequence_id, 1)
        client.send_message(b"value", sequence_id, 2)
    receipts = [await client.receive("send_receipt") for _ in range(40)]

    assert {receipt.message_id.entry_id for receipt in receipts} == set(range(40))
    for producer_id in (1, 2):
        of_producer = [receipt.sequence_id for receipt in receipts if receipt.producer_id == producer_id]
        assert of_producer == list(range(20))


async def test_a_stream_whose_batches_need_more_checks_is_decided_by_python(
    pulsar: PulsarNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pulsar.create("t", message_timestamp_type="LogAppendTime")
    client = await pulsar.client()
    await client.produce("t")
    monkeypatch.setattr(kernel, "take_sends", forbidden)

    client.send_message(b"value", 0)

    assert (await client.receive("send_receipt")).message_id.entry_id == 0


@pytest.mark.parametrize("full", [{"object_batch_count_max": 3}, {"object_bytes_max": 350}, {"object_bytes_max": 50}])
async def test_sends_go_on_in_the_next_object_when_one_is_full(pulsar_cluster: Make, full: dict[str, int]) -> None:
    streams = StreamsSettings(writer=WriterSettings(**full))
    (node,) = (await pulsar_cluster(1, streams=streams)).nodes
    client = await node.client()
    await client.produce("t")

    for sequence_id in range(20):
        client.send_message(b"value", sequence_id)
    receipts = [await client.receive("send_receipt") for _ in range(20)]

    assert [receipt.sequence_id for receipt in receipts] == list(range(20))
    assert [receipt.message_id.entry_id for receipt in receipts] == list(range(20))


async def test_other_sends_keep_their_place_among_those_that_are_taken(pulsar: PulsarNode) -> None:
    client = await pulsar.client()
    await client.produce("t", producer_name="p")

    for sequence_id in range(20):
        if sequence_id % 5 == 3:
            fields = {"compression": ZLIB, "uncompressed_size": 5}
            client.send_message(zlib.compress(b"value"), sequence_id, **fields)
        else:
            client.send_message(b"value", sequence_id)
    receipts = [await client.receive("send_receipt") for _ in range(20)]
    opened = await (await pulsar.client()).produce("t", producer_name="p", epoch=1)

    assert [receipt.sequence_id for receipt in receipts] == list(range(20))
    assert [receipt.message_id.entry_id for receipt in receipts] == list(range(20))
    assert opened.last_sequence_id == 19


async def test_a_bug_in_the_answer_closes_only_the_connection(
    pulsar: PulsarNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = await pulsar.client()
    await client.produce("t")
    with monkeypatch.context() as patch:
        patch.setattr(TakenSends, "receipts", forbidden)
        client.send_message(b"value", 0)
        await until(lambda: not len(pulsar.server.connections))
    other = await pulsar.client()
    await other.produce("t")

    other.send_message(b"value", 0)

    assert (await other.receive("send_receipt")).message_id.entry_id == 1
    assert "only its subject ends" in caplog.text
