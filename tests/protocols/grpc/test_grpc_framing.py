"""Messages that are read without copies mean the same as those that protobuf reads."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from bearlake.protocols.grpc import framing
from bearlake.protocols.grpc.proto import stream_pb2 as pb

LARGE = bytes(framing.LARGE_BYTES)


def whole(incoming: framing.Incoming) -> pb.ProduceStreamRequest:
    """The message as protobuf would have read it."""
    request = pb.ProduceStreamRequest()
    request.CopyFrom(incoming.request)
    if incoming.batch is not None:
        assert not request.HasField("payload")
        request.payload.record_batches = bytes(incoming.batch)
    return request


@given(
    stream=st.text(max_size=20),
    partition=st.integers(-(2**31), 2**31 - 1),
    size=st.sampled_from([0, 1, len(LARGE) - 200, len(LARGE), 3 * len(LARGE)]),
    sequence=st.none() | st.integers(0, 2**31 - 1),
    unknown=st.sampled_from([b"", b"\xa8\x06\x07", b"\xa9\x06" + bytes(8), b"\xad\x06" + bytes(4), b"\xaa\x06\x02ab"]),
)
def test_every_message_is_read_as_protobuf_reads_it(
    stream: str, partition: int, size: int, sequence: int | None, unknown: bytes
) -> None:
    request = pb.ProduceStreamRequest(
        stream=stream, partition=partition, payload=pb.Payload(record_batches=b"\x01" * size)
    )
    if sequence is not None:
        request.sequence.base_sequence = sequence
    data = unknown + request.SerializeToString()

    found = framing.read(data)

    assert whole(found) == pb.ProduceStreamRequest.FromString(data)
    assert (found.batch is not None) == (len(data) >= framing.LARGE_BYTES)


@pytest.mark.parametrize(
    "payload", [pb.Payload(records=pb.Records(records=[pb.Record(value=LARGE)])), pb.Payload()], ids=["records", "none"]
)
def test_other_payloads_are_left_to_protobuf(payload: pb.Payload) -> None:
    data = pb.ProduceStreamRequest(stream="s" * len(LARGE), payload=payload).SerializeToString()

    assert framing.read(data) == framing.Incoming(pb.ProduceStreamRequest.FromString(data))


def test_a_repeated_payload_field_is_merged_as_protobuf_does() -> None:
    data = pb.ProduceStreamRequest(payload=pb.Payload(record_batches=LARGE)).SerializeToString()

    assert whole(framing.read(data + data)) == pb.ProduceStreamRequest.FromString(data + data)


def test_cut_off_messages_are_refused() -> None:
    data = pb.ProduceStreamRequest(payload=pb.Payload(record_batches=LARGE + LARGE)).SerializeToString()

    for end in (len(data) - 1, len(LARGE) + 5):
        with pytest.raises(DecodeError):
            framing.read(data[:end])
