"""Ordinary Fetch requests and their responses, in all versions: the bytes that Kafka's schemas say. KIP-227, KIP-482, KIP-516."""

from types import ModuleType
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from bearlake.errors import Unsupported
from bearlake.kernel import fallback
from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.messages import FetchRequest, FetchResponse
from kernel.test_kernel_differential import SETTINGS, outcome

VERSIONS = range(4, 19)
ID = bytes(range(16))
LARGE = memoryview(b"x" * 2000)
SMALL = memoryview(b"y" * 1024)


def topic_of(version: int, name: str = "orders", number: int = 0) -> str | bytes:
    return name if version < 13 else ID[number:] + ID[:number]


def request(*topics: tuple[str, int], **fields: Any) -> FetchRequest:
    """Two partitions per topic; a topic is its name and the number of its id."""
    made = [
        FetchRequest.Topic(
            topic=name,
            topic_id=ID[number:] + ID[:number],
            partitions=[
                FetchRequest.Partition(
                    partition=index,
                    current_leader_epoch=3,
                    fetch_offset=2**40 + index,
                    partition_max_bytes=1000 + index,
                )
                for index in range(2)
            ],
        )
        for name, number in topics
    ]
    return FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=10_000, topics=made, **fields)


def encoded(version: int, message: FetchRequest) -> bytes:
    return b"".join(codec.request(ApiKey.FETCH, version).encode(message))


@pytest.mark.parametrize("version", VERSIONS)
def test_an_ordinary_request_is_decoded_in_every_version(kernel: ModuleType, version: int) -> None:
    body = encoded(version, request(("orders", 0), ("é", 1), rack_id="a", cluster_id="c"))
    epoch = 3 if version >= 9 else -1

    found = kernel.parse_fetch(body, version, 4)

    topics = [topic_of(version), topic_of(version, "é", 1)]
    entries = [(topic, index, epoch, 2**40 + index, 1000 + index) for topic in topics for index in range(2)]
    assert found == (500, 1, 10_000, entries)
    assert kernel.parse_fetch(body + b"more", version, 4) == found


@pytest.mark.parametrize("version", [9, 12, 13, 18])
@pytest.mark.parametrize(
    "message",
    [
        request(),
        request(("a", 0), ("b", 1), ("c", 2)),
        request(("orders", 0), session_id=7, session_epoch=1),
        request(("orders", 0), forgotten_topics_data=[FetchRequest.ForgottenTopic(topic="t", partitions=[1])]),
        FetchRequest(topics=[FetchRequest.Topic(topic="orders", partitions=[])]),
    ],
)
def test_a_request_that_needs_more_than_its_partitions_is_left_to_the_codec(
    kernel: ModuleType, version: int, message: FetchRequest
) -> None:
    assert kernel.parse_fetch(encoded(version, message), version, 4) is None


@pytest.mark.parametrize("version", [4, 14])
def test_a_replica_is_left_to_the_codec(kernel: ModuleType, version: int) -> None:
    assert kernel.parse_fetch(encoded(version, request(("orders", 0), replica_id=1)), version, 4) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_ends_early_is_left_to_the_codec(kernel: ModuleType, version: int) -> None:
    body = encoded(version, request(("orders", 0)))

    assert [kernel.parse_fetch(body[:size], version, 4) for size in range(len(body))] == [None] * len(body)


def test_a_topic_that_is_not_text_is_left_to_the_codec(kernel: ModuleType) -> None:
    body = encoded(9, request(("orders", 0))).replace(b"orders", b"\xff" * 6)

    assert kernel.parse_fetch(body, 9, 4) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_has_the_bytes_of_kafkas_schema(kernel: ModuleType, version: int) -> None:
    first, second = topic_of(version), topic_of(version, "é", 1)
    answers: list[tuple[int, int, int, list[memoryview]]] = [
        (5, 2**40, 2**40 - 1, [SMALL, LARGE, LARGE, SMALL]), (0, 0, 0, []), (-1, -1, -1, [LARGE]), (1, 2, 3, [SMALL])
    ]  # fmt: skip
    entries = [(first, 0, -1, 0, 9), (first, 2**31 - 1, -1, 0, 9), (second, 1, -1, 0, 9), (first, 3, -1, 0, 9)]
    topics: list[FetchResponse.Topic] = []
    for names, number, part in ("orders", 0, [0, 1]), ("é", 1, [2]), ("orders", 0, [3]):
        partitions = [
            FetchResponse.Partition(
                partition_index=entries[at][1],
                high_watermark=answers[at][1],
                last_stable_offset=answers[at][2],
                log_start_offset=answers[at][0],
                records=answers[at][3],
            )
            for at in part
        ]
        topics.append(FetchResponse.Topic(topic=names, topic_id=ID[number:] + ID[:number], partitions=partitions))
    expected = codec.response(ApiKey.FETCH, version).frame(2**31 - 1, FetchResponse(responses=topics))

    chunks = kernel.encode_fetch(version, 2**31 - 1, entries, answers)

    assert b"".join(chunks) == b"".join(expected)
    assert [part for part in chunks if isinstance(part, memoryview)] == [LARGE] * 3
    assert all(part is LARGE for part in chunks if isinstance(part, memoryview))


def test_many_small_views_make_chunks_of_64_kib(kernel: ModuleType) -> None:
    entries = [("orders", index, -1, 0, 9) for index in range(200)]

    chunks = kernel.encode_fetch(12, 1, entries, [(0, 1, 1, [SMALL])] * 200)

    assert [len(chunk) // 1024 for chunk in chunks] == [64, 64, 64, 14]
    assert b"".join(chunks).count(SMALL) == 200


@pytest.mark.parametrize(
    ("version", "entry", "answer", "message"),
    [
        (9, ("a", 2**31, -1, 0, 9), (0, 0, 0, []), "Fetch response"),
        (9, ("a", 1, -1, 0, 9), (0, 2**63, 0, []), "Fetch response"),
        (9, ("a" * 32_768, 1, -1, 0, 9), (0, 0, 0, []), "a topic name is"),
        (9, (ID, 1, -1, 0, 9), (0, 0, 0, []), "a topic name is"),
        (13, ("a", 1, -1, 0, 9), (0, 0, 0, []), "a topic id has"),
    ],
)
def test_a_response_whose_fields_do_not_fit_is_refused(
    kernel: ModuleType, version: int, entry: Any, answer: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        kernel.encode_fetch(version, 1, [entry], [answer])


@pytest.mark.parametrize("size", [10, 2000])
def test_a_view_whose_memory_was_released_is_refused(kernel: ModuleType, size: int) -> None:
    view = memoryview(bytes(size))
    view.release()

    with pytest.raises(ValueError, match="released"):
        kernel.encode_fetch(9, 1, [("a", 0, -1, 0, 9)], [(0, 0, 0, [view])])


def test_every_entry_needs_an_answer(kernel: ModuleType) -> None:
    with pytest.raises(ValueError, match="one answer per entry"):
        kernel.encode_fetch(9, 1, [("a", 0, -1, 0, 9)], [])


@pytest.mark.parametrize("version", [3, 19])
def test_other_versions_are_refused(kernel: ModuleType, version: int) -> None:
    with pytest.raises(Unsupported, match="supported: 4-18"):
        kernel.parse_fetch(b"", version, 4)
    with pytest.raises(Unsupported, match="supported: 4-18"):
        kernel.encode_fetch(version, 1, [], [])


@SETTINGS
@given(version=st.sampled_from(VERSIONS), data=st.data(), count_max=st.integers(-1, 5))
def test_both_kernels_decode_damaged_requests_alike(
    native: ModuleType, version: int, data: st.DataObject, count_max: int
) -> None:
    body = bytearray(encoded(version, request(("orders", 0), ("b", 1))))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    cut = body[: data.draw(st.integers(0, len(body)))] if data.draw(st.booleans()) else body

    assert outcome(native.parse_fetch, bytes(cut), version, count_max) == outcome(
        fallback.parse_fetch, bytes(cut), version, count_max
    )
