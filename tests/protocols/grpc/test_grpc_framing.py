"""Messages that are read without copies mean the same as those that protobuf reads."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from bearlake.protocols.grpc import framing
from bearlake.protocols.grpc.proto import stream_pb2 as pb

LARGE = bytes(framing.LARGE_BYTES)


def whole(incoming: framing.Incoming[pb.ProduceStreamRequest]) -> pb.ProduceStreamRequest:
    """The message as protobuf would have read it."""
    request = pb.ProduceStreamRequest()
    request.CopyFrom(incoming.request)
    if (incoming.batch, incoming.records, incoming.arrow) != (None, None, None):
        assert not request.HasField("payload")
    if incoming.batch is not None:
        request.payload.record_batches = bytes(incoming.batch)
    if incoming.records is not None:
        request.payload.records.MergeFromString(b"".join(incoming.records))
    if incoming.arrow is not None:
        request.payload.arrow.schema, request.payload.arrow.record_batch = incoming.arrow
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

    found = framing.read_stream(data)

    assert whole(found) == pb.ProduceStreamRequest.FromString(data)
    assert (found.batch is not None) == (len(data) >= framing.LARGE_BYTES)


PAYLOADS = {
    "no form": [pb.Payload()],
    "records": [pb.Payload(records=pb.Records(records=[pb.Record(value=LARGE), pb.Record(key=b"k")]))],
    "Arrow": [pb.Payload(arrow=pb.ArrowRecords(schema=b"s", record_batch=LARGE))],
    "a batch twice": 2 * [pb.Payload(record_batches=LARGE)],
    "records twice": 2 * [pb.Payload(records=pb.Records(records=[pb.Record(value=LARGE)]))],
    "a batch, then records": [pb.Payload(record_batches=LARGE), pb.Payload(records=pb.Records(records=[pb.Record()]))],
    "Arrow in pieces": [
        pb.Payload(arrow=pb.ArrowRecords(schema=b"s")),
        pb.Payload(arrow=pb.ArrowRecords(record_batch=LARGE)),
    ],
}


@pytest.mark.parametrize("what", PAYLOADS)
def test_every_form_is_read_as_protobuf_reads_it(what: str) -> None:
    data = b"".join(pb.ProduceStreamRequest(payload=payload).SerializeToString() for payload in PAYLOADS[what])
    data += pb.ProduceStreamRequest(stream="s" * len(LARGE)).SerializeToString()

    assert whole(framing.read_stream(data)) == pb.ProduceStreamRequest.FromString(data)


def test_a_unary_message_is_read_likewise() -> None:
    data = pb.ProduceRequest(stream="s", payload=pb.Payload(record_batches=LARGE)).SerializeToString()

    found = framing.read_unary(data)

    assert (found.request, found.batch) == (pb.ProduceRequest(stream="s"), LARGE)


@pytest.mark.parametrize("field", [b"\x08\x01", b"\x1a\x00", b"\x22\x00", b"\x1a\x04\x1a\x02\x0a\x00", b"\xa8\x06\x07"])
def test_a_message_of_very_many_fields_is_refused(field: bytes) -> None:
    with pytest.raises(DecodeError, match="more than 100 fields"):
        framing.read_stream(field * 1_000_000)


def test_a_field_of_many_small_fields_is_not_parsed() -> None:
    """protobuf would take its time: a sequence of 4 MiB."""
    with pytest.raises(DecodeError, match="bytes outside the payload"):
        framing.read_stream(b"\x22\x80\x80\x80\x02" + b"\x08\x01" * (2 * 1024 * 1024))


def test_cut_off_messages_are_refused() -> None:
    data = pb.ProduceStreamRequest(payload=pb.Payload(record_batches=LARGE + LARGE)).SerializeToString()

    for end in (len(data) - 1, len(LARGE) + 5):
        with pytest.raises(DecodeError):
            framing.read_stream(data[:end])
