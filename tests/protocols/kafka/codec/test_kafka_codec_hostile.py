"""Malformed input raises Corrupt, with the field and the position, and nothing else; it allocates almost nothing."""

import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bearlake.errors import Corrupt, Unsupported
from bearlake.protocols.kafka import codec, messages
from bearlake.protocols.kafka.codec import wire


def decode(api, version, payload, kind="request"):
    return getattr(codec, kind)(api, version).decode(memoryview(bytes.fromhex(payload)))


@pytest.mark.parametrize(
    ("api", "version", "payload", "message"),
    [
        (3, 9, "", r"topics\b.* 0$"),
        (3, 8, "7fffffff", r"topics\b.*2147483647 .* 0 .* 4$"),
        (3, 9, "8080808008", r"topics\b.*2147483647 .* 0 .* 5$"),
        (3, 9, "ffffffff0f", r"topics\b.*4294967294 .* 0 "),
        (3, 9, "ffffffff1f", r"topics\b.* 32 bits"),
        (3, 9, "808080808000", r"topics\b.* 5 bytes"),
        (3, 0, "ffffffff", r"topics\b"),
        (3, 8, "00000001 7fff", r"topics\.name\b.* 32767 .* 0 .* 6$"),
        (3, 8, "00000001 ffff", r"topics\.name\b"),
        (3, 8, "00000001 0001 ff 01 00 00", r"topics\.name\b.*0xff"),
        (3, 9, "02 00 00 00 00", r"topics\.name\b"),
        (3, 9, "02 03 61", r"topics\.name\b.* 2 bytes .* 1 "),
        (3, 9, "00 01 00 00 02 63 02 0000 63 7f", r"tagged fields\b.* 127 bytes .* 0 "),
        (3, 9, "00 01 00 00 ffffff7f", "268435455 tagged fields .* 1000000 "),
        (12, 4, "01 00000000 01 00 01 07", "tagged fields"),
        (0, 9, "00 0001 00000000 02 02 61 02 00000000 85808080 01", r"partition_data\.records\b.* 0 "),
        (1, 12, "00000000 00000000 00000000 00000000 00 00000000 00000000 01 01 01 01 00 03 02 6162",
         r"cluster_id\b"),
        (75, 0, "01 00000000 01 00 00000000 00 00", r"cursor\.topic_name\b"),
    ],
)  # fmt: skip
def test_broken_request_is_refused_with_its_field_and_place(api, version, payload, message):
    with pytest.raises(Corrupt, match=message):
        decode(api, version, payload)


def test_compact_string_longer_than_any_string_is_refused():
    payload = "02" + "8180 02".replace(" ", "") + "61" * 40_000

    with pytest.raises(Corrupt, match=r"32768 bytes .* 32767"):
        decode(3, 9, payload)


def test_unknown_tagged_fields_are_skipped_wherever_they_stand():
    topic = "02 61 01 63 03 010203"
    request = decode(3, 9, f"02 {topic} 01 00 00 02 05 00 8108 02 0909")

    assert request == messages.MetadataRequest(topics=[messages.MetadataRequest.Topic(name="a")])


def test_tagged_fields_may_be_in_any_order_and_the_last_of_duplicates_counts():
    head = "00000000 00000000 00000000 00 00000000 00000000 01 01 01"
    tags = "04 01 0d 00000005 0000000000000009 00 00 02 02 61 00 02 02 62 7f 00"

    request = decode(1, 15, f"{head} {tags}")

    assert request.cluster_id == "b"
    assert request.replica_state == messages.FetchRequest.ReplicaState(replica_id=5, replica_epoch=9)


def test_bools_are_true_for_any_byte_but_zero():
    assert decode(3, 4, "ffffffff 7f").allow_auto_topic_creation is True
    assert decode(3, 4, "ffffffff 00").allow_auto_topic_creation is False


def test_lengths_below_minus_one_are_null_as_in_kafka():
    assert decode(3, 1, "fffffff0").topics is None


@pytest.mark.parametrize("cut", range(10))
def test_header_that_is_cut_off_is_refused(cut):
    frame = bytes.fromhex("0003 000c 00000001 0000 00")

    with pytest.raises(Corrupt, match="request header"):
        codec.read_request_header(memoryview(frame[:cut]))


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ("0003 000c 00000001 0005 6161", r"\b5 bytes.* 2 "),
        ("0003 000c 00000001 0001 ff 00", "utf-8"),
        ("0003 000c 00000001 ffff 01 00 05 00", "5 bytes .* 1 "),
        ("0003 000c 00000001 ffff ffffff7f", "268435455 tagged fields"),
        ("0003 000c 00000001 ffff ffffffffff", "5 bytes"),
    ],
)
def test_broken_header_is_refused(frame, message):
    with pytest.raises(Corrupt, match=f"request header: .*{message}"):
        codec.read_request_header(memoryview(bytes.fromhex(frame)))


def test_response_header_that_is_cut_off_is_refused():
    with pytest.raises(Corrupt, match="response header"):
        codec.read_response_header(memoryview(bytes(4)), 3, 9)


def test_huge_counts_allocate_nothing():
    payloads = [(3, 8, "7fffffff"), (3, 9, "ffffffff0f"), (60, 0, "01 ffffffff0f"), (9, 6, "01 ffffffff0f")]
    for api, version, payload in payloads:
        with pytest.raises(Corrupt):
            decode(api, version, payload)  # builds the codec

    tracemalloc.start()
    for api, version, payload in payloads:
        with pytest.raises(Corrupt):
            decode(api, version, payload)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 200_000


def test_a_message_of_too_many_small_elements_is_refused_before_they_become_objects():
    topic_of_three_bytes = bytes.fromhex("01 01 00")
    count = wire.ELEMENTS_MAX + 1
    length = bytearray()
    wire.write_varint(length, count + 1)
    payload = bytes.fromhex("00 0001 00000000") + length + topic_of_three_bytes * count + b"\0"

    tracemalloc.start()
    with pytest.raises(Corrupt, match=f"{wire.ELEMENTS_MAX}"):
        codec.request(0, 9).decode(memoryview(payload))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 1_000_000


def test_the_limit_of_elements_counts_all_arrays_of_a_message():
    partitions = [0] * (wire.ELEMENTS_MAX // 2)
    topics = [messages.OffsetFetchRequest.Topic(partition_indexes=partitions) for _ in range(2)]
    payload = b"".join(codec.request(9, 1).encode(messages.OffsetFetchRequest(topics=topics)))

    with pytest.raises(Corrupt, match=r"topics\.partition_indexes\b"):
        codec.request(9, 1).decode(memoryview(payload))


def test_mutated_frames_raise_nothing_but_corrupt(api, kind, samples):
    rng = random.Random(f"{api}-{kind}")
    for version in codec.versions(api):
        message_codec = getattr(codec, kind)(api, version)
        for seed in range(3):
            valid = b"".join(message_codec.encode(samples.message(api, kind, version, seed)))[:3000]
            for _ in range(40):
                decode_or_corrupt(message_codec, mutated(valid, rng))


def mutated(valid, rng):
    frame = bytearray(valid)
    for _ in range(rng.randrange(1, 4)):
        position = rng.randrange(len(frame) + 1)
        step = rng.randrange(4)
        if step == 0:
            del frame[position:]
        elif step == 1:
            frame[position : position + 4] = rng.choice([b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\x80\x80\x80\x08"])
        elif step == 2:
            frame[position:position] = rng.randbytes(rng.randrange(1, 9))
        elif position < len(frame):
            frame[position] ^= 1 << rng.randrange(8)
    return bytes(frame)


def decode_or_corrupt(message_codec, frame):
    """A frame either is refused or decodes to a message that survives a round trip."""
    try:
        message = message_codec.decode(memoryview(frame))
    except Corrupt:
        return
    assert message_codec.decode(memoryview(b"".join(message_codec.encode(message)))) == message


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(codec.ApiKey), st.sampled_from(["request", "response"]), st.randoms(), st.binary(max_size=200))
def test_random_bytes_raise_nothing_but_corrupt(api, kind, rng, frame):
    decode_or_corrupt(getattr(codec, kind)(api, rng.choice(codec.versions(api))), frame)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(codec.ApiKey), st.integers(-1, 20), st.binary(max_size=60))
def test_random_headers_raise_nothing_but_corrupt_or_unsupported(api, version, rest):
    frame = int(api).to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + rest
    try:
        _, position = codec.read_request_header(memoryview(frame))
    except (Corrupt, Unsupported):
        return
    assert position <= len(frame)


def test_bytes_after_a_request_are_ignored_as_librdkafka_sends_them_with_metadata_13() -> None:
    body = memoryview(bytes.fromhex("00000000 010000"))  # all topics, as librdkafka 2.16 asks for them

    request = codec.request(3, 13).decode(body)

    assert request.topics is None
    assert request.allow_auto_topic_creation is False


def test_bytes_after_a_response_are_refused() -> None:
    with pytest.raises(Corrupt, match="1 bytes"):
        codec.response(12, 0).decode(memoryview(b"\0\0\0"))
