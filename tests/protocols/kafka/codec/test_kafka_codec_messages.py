"""Messages: round trips, golden bytes, constructors, frames, references instead of copies."""

import pytest

from bearlake.errors import Invalid, Unsupported
from bearlake.protocols.kafka import codec, messages
from bearlake.protocols.kafka.codec import stubs
from bearlake.protocols.kafka.codec.wire import INLINE_BYTES_MAX
from bearlake.protocols.kafka.messages import FetchResponse, MetadataResponse, ProduceRequest, ProduceResponse

# The frames were written by hand from the field tables of the protocol guide.
GOLDEN = {
    "produce request, version 3, with the header of version 1": (
        lambda: codec.request(0, 3).frame(
            5,
            "me",
            ProduceRequest(
                acks=-1,
                timeout_ms=1500,
                topic_data=[
                    ProduceRequest.Topic(
                        name="logs", partition_data=[ProduceRequest.Partition(index=1, records=b"RECORDS")]
                    )
                ],
            ),
        ),
        """00000031 0000 0003 00000005 0002 6d65
        ffff ffff 000005dc 00000001 0004 6c6f6773 00000001 00000001 00000007 5245434f524453""",
    ),
    "produce request, version 9, with the header of version 2": (
        lambda: codec.request(0, 9).frame(
            5,
            None,
            ProduceRequest(
                transactional_id="tx",
                acks=1,
                timeout_ms=0,
                topic_data=[ProduceRequest.Topic(name="logs", partition_data=[ProduceRequest.Partition(index=1)])],
            ),
        ),
        "00000023 0000 0009 00000005 ffff 00 03 7478 0001 00000000 02 05 6c6f6773 02 00000001 01 00 00 00",
    ),
    "produce response, version 13, with a leader in a tagged field": (
        lambda: codec.response(0, 13).frame(
            6,
            ProduceResponse(
                responses=[
                    ProduceResponse.Topic(
                        topic_id=bytes(range(16)),
                        partition_responses=[
                            ProduceResponse.Partition(
                                error_code=6,
                                base_offset=-1,
                                current_leader=ProduceResponse.Leader(leader_id=7, leader_epoch=0),
                            )
                        ],
                    )
                ]
            ),
        ),
        """00000049 00000006 00 02 000102030405060708090a0b0c0d0e0f 02
        00000000 0006 ffffffffffffffff ffffffffffffffff ffffffffffffffff 01 00
        01 00 09 00000007 00000000 00
        00 00000000 00""",
    ),
    "API versions response, version 3, whose header stays at version 0": (
        lambda: codec.response(18, 3).frame(
            1,
            messages.ApiVersionsResponse(
                api_keys=[messages.ApiVersionsResponse.ApiVersion(api_key=18, max_version=4)],
                finalized_features_epoch=2,
            ),
        ),
        "0000001d 00000001 0000 02 0012 0000 0004 00 00000000 01 01 08 0000000000000002",
    ),
    "metadata request, version 1, for all topics": (
        lambda: codec.request(3, 1).frame(2, "", messages.MetadataRequest(topics=None)),
        "0000000e 0003 0001 00000002 0000 ffffffff",
    ),
    "describe topic partitions request, version 0, with a nullable struct": (
        lambda: codec.request(75, 0).encode(
            messages.DescribeTopicPartitionsRequest(
                cursor=messages.DescribeTopicPartitionsRequest.Cursor(topic_name="a", partition_index=3)
            )
        ),
        "01 000007d0 01 02 61 00000003 00 00",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_bytes(name):
    make, expected = GOLDEN[name]

    assert b"".join(make()) == bytes.fromhex(expected)


def test_every_message_survives_a_round_trip(api, kind, samples):
    for version in codec.versions(api):
        message_codec = getattr(codec, kind)(api, version)
        for seed in range(5):
            message = samples.message(api, kind, version, seed)
            assert message_codec.decode(memoryview(b"".join(message_codec.encode(message)))) == message


def test_request_frames_are_read_back_with_their_header(api, samples):
    for version in codec.versions(api):
        message = samples.message(api, "request", version, 1)
        for client_id in ("client-é", "", None):
            frame = memoryview(b"".join(codec.request(api, version).frame(77, client_id, message)))
            assert int.from_bytes(frame[:4], "big") == len(frame) - 4
            header, position = codec.read_request_header(frame[4:])
            assert header == (api, version, 77, client_id)
            assert codec.request(header.api_key, header.version).decode(frame[4:], position) == message


def test_response_frames_are_read_back_with_their_header(api, samples):
    for version in codec.versions(api):
        message = samples.message(api, "response", version, 2)
        frame = memoryview(b"".join(codec.response(api, version).frame(-5, message)))
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        correlation_id, position = codec.read_response_header(frame[4:], api, version)
        assert correlation_id == -5
        assert codec.response(api, version).decode(frame[4:], position) == message


def pytest_generate_tests(metafunc):
    if "api" in metafunc.fixturenames and "kind" not in metafunc.fixturenames:
        metafunc.parametrize("api", list(codec.ApiKey), ids=[key.name.lower() for key in codec.ApiKey])


def test_response_header_of_api_versions_never_has_tagged_fields():
    assert [codec.response(18, version).header_version for version in range(5)] == [0, 0, 0, 0, 0]
    assert [codec.response(3, version).header_version for version in (8, 9)] == [0, 1]


def test_header_of_a_newer_version_than_any_schema_is_still_read():
    frame = bytes.fromhex("0012 0063 00000009 0001 78 00") + b"body of version 99"

    header, position = codec.read_request_header(memoryview(frame))

    assert header == (18, 99, 9, "x")
    assert frame[position:] == b"body of version 99"


def test_unknown_tagged_fields_of_a_request_header_are_skipped():
    frame = memoryview(bytes.fromhex("0003 000c 00000001 ffff 02 05 03 aabbcc 8101 00") + b"body")

    _, position = codec.read_request_header(frame)

    assert frame[position:] == b"body"


def test_decoded_records_are_slices_of_the_frame():
    request = ProduceRequest(
        topic_data=[ProduceRequest.Topic(name="t", partition_data=[ProduceRequest.Partition(records=b"abc")])]
    )
    frame = bytearray(b"".join(codec.request(0, 9).encode(request)))

    records = codec.request(0, 9).decode(memoryview(frame)).topic_data[0].partition_data[0].records

    assert records == b"abc"
    assert records.obj is frame


def test_decoded_bytes_outlive_the_frame():
    request = messages.SyncGroupRequest(
        assignments=[messages.SyncGroupRequest.Assignment(member_id="m", assignment=b"opaque")]
    )
    frame = bytearray(b"".join(codec.request(14, 5).encode(request)))

    decoded = codec.request(14, 5).decode(memoryview(frame))
    frame[:] = bytes(len(frame))

    assert decoded.assignments[0].assignment == b"opaque"
    assert type(decoded.assignments[0].assignment) is bytes


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_encoded_records_are_the_buffers_of_the_caller(version):
    first, second = bytes(INLINE_BYTES_MAX + 1), memoryview(bytearray(5000))
    small = b"small"
    response = FetchResponse(
        responses=[
            FetchResponse.Topic(partitions=[FetchResponse.Partition(records=[first, small, second])]),
            FetchResponse.Topic(partitions=[FetchResponse.Partition(records=first)]),
        ]
    )

    chunks = codec.response(1, version).frame(1, response)

    assert [index for index, chunk in enumerate(chunks) if chunk is first] == [1, 5]
    assert chunks[3] is second
    decoded = codec.response(1, version).decode(memoryview(b"".join(chunks)), 8 + (version >= 12))
    assert decoded.responses[0].partitions[0].records == first + small + second
    assert decoded.responses[1].partitions[0].records == first


def test_records_are_null_or_empty_as_the_caller_requests():
    for version in (8, 9):
        for records in (None, b"", []):
            request = ProduceRequest(
                topic_data=[ProduceRequest.Topic(partition_data=[ProduceRequest.Partition(records=records)])]
            )
            payload = memoryview(b"".join(codec.request(0, version).encode(request)))
            decoded = codec.request(0, version).decode(payload).topic_data[0].partition_data[0].records
            assert decoded == (None if records is None else b"")


def test_constructors_know_the_defaults_of_the_schema():
    request = messages.FetchRequest()

    assert (request.replica_id, request.max_bytes, request.session_epoch, request.rack_id) == (-1, 2**31 - 1, -1, "")
    assert (request.cluster_id, request.replica_state, request.topics) == (None, None, [])
    assert messages.FetchRequest.Partition().high_watermark == 2**63 - 1
    assert messages.MetadataRequest().allow_auto_topic_creation is True
    assert messages.FetchRequest.Topic().topic_id == codec.UUID_ZERO


def test_two_messages_do_not_share_their_default_lists():
    MetadataResponse().topics.append(MetadataResponse.Topic())

    assert MetadataResponse().topics == []


def test_messages_are_compared_by_value_and_show_their_fields():
    request = messages.HeartbeatRequest(group_id="g", generation_id=3)

    assert request == messages.HeartbeatRequest(group_id="g", generation_id=3)
    assert request != messages.HeartbeatRequest(group_id="g", generation_id=4)
    assert request != messages.HeartbeatResponse()
    assert repr(request) == "HeartbeatRequest(group_id='g', generation_id=3, member_id='', group_instance_id=None)"
    assert repr(FetchResponse.SnapshotId()) == "FetchResponse.SnapshotId(end_offset=-1, epoch=-1)"


def test_misspelt_fields_are_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'acs'"):
        ProduceRequest(acs=1)
    with pytest.raises(AttributeError):
        ProduceRequest().acs = 1
    with pytest.raises(AttributeError, match="ProducedRequest"):
        messages.ProducedRequest  # noqa: B018


def test_every_message_can_be_imported_by_name(api):
    for kind in ("Request", "Response"):
        name = api.name.title().replace("_", "") + kind
        assert getattr(messages, name).api_key is api


@pytest.mark.parametrize(
    ("message", "what"),
    [
        (ProduceRequest(acks=1 << 15), ""),
        (ProduceRequest(topic_data=None), r"topic_data\b"),
        (ProduceRequest(topic_data=[ProduceRequest.Topic(name=None)]), r"topic_data\.name\b"),
        (ProduceRequest(topic_data=[ProduceRequest.Topic(name="\ud800")]), r"topic_data\.name\b"),
        (ProduceRequest(topic_data=[ProduceRequest.Topic(name="x" * 32_768)]), r"topic_data\.name\b.*32768"),
    ],
)
@pytest.mark.parametrize("version", [8, 9])
def test_values_that_do_not_fit_their_field_are_refused_by_name(message, what, version):
    with pytest.raises(Invalid, match=f"Produce .*{version}.*{what}"):
        codec.request(0, version).encode(message)


def test_a_message_without_a_schema_is_unsupported():
    with pytest.raises(Unsupported, match="4"):
        codec.request(4, 0)
    with pytest.raises(Unsupported, match="4"):
        codec.versions(4)
    with pytest.raises(Unsupported, match=r"Fetch .* 3.* 4 .* 18"):
        codec.response(1, 3)
    with pytest.raises(Unsupported, match="9999"):
        codec.read_request_header(memoryview(bytes.fromhex("270f 0000 00000000 ffff")))


def test_stub_file_is_up_to_date():
    assert stubs.STUB.read_text() == stubs.render(), "run `python -m bearlake.protocols.kafka.codec.stubs`"
