"""Unmodified clients that others maintain produce to and consume from the server, each on its own.

The clients must read exactly what they wrote: null is not empty, headers repeat, text is UTF-8, a value is large.
"""

import pytest

from clients.messages import Client, Message, by_content

pytestmark = [
    pytest.mark.integration,
    # Warnings of third-party libraries are not ours to fix.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]

HEADERS = (("trace", b"1"), ("trace", b"2"), ("language", "日本語".encode()), ("empty", b""))
TEXTS = [
    Message("grüße, 世界 🐻".encode(), "schlüssel".encode(), HEADERS),
    Message(b"a value without a key", None, HEADERS),
    Message(None, b"a tombstone", HEADERS),
    Message(b"", b"an empty value is not null", HEADERS),
    Message(b"no headers at all", b"plain"),
]
NULL_HEADER = Message(b"a header without a value", b"null", (("null", None), ("empty", b"")))
BYTES = [Message(bytes(range(256)), b"\x00\xff", (("binary", b"\xfe\n\t"),))]
LARGE_BYTES = 900_000


def test_every_compression_is_read_as_it_was_written(client: Client, name: str) -> None:
    client.create_topic(name, 3)
    written = []
    for compression in client.compressions:
        messages = [Message(f"{compression} {number} {'x' * 200}".encode(), b"%d" % number) for number in range(50)]
        client.produce(name, messages, compression)
        written += messages

    assert by_content(client.consume(name, name, len(written))) == by_content(written)


def test_a_group_resumes_from_its_committed_offset(client: Client, name: str) -> None:
    client.create_topic(name, 1)
    written = [Message(b"%d" % number) for number in range(10)]
    client.produce(name, written)

    assert client.consume(name, name, 4) == written[:4]
    assert client.consume(name, name, 6) == written[4:]


def test_two_groups_read_the_same_records(client: Client, name: str) -> None:
    client.create_topic(name, 1)
    written = [Message(b"%d" % number) for number in range(10)]
    client.produce(name, written)

    assert client.consume(name, f"{name}-a", 10) == written
    assert client.consume(name, f"{name}-b", 10) == written


def test_nulls_headers_unicode_and_bytes_survive(client: Client, name: str) -> None:
    client.create_topic(name, 1)
    bytes_if_possible = [] if client.is_text_only else BYTES
    written = TEXTS + bytes_if_possible + ([NULL_HEADER] if client.has_null_headers else [])
    client.produce(name, written)

    assert client.consume(name, name, len(written)) == written


def test_a_large_value_survives(client: Client, name: str) -> None:
    client.create_topic(name, 1)
    written = [Message(b"small"), Message(b"x" * LARGE_BYTES), Message(b"small again")]
    client.produce(name, written)

    assert client.consume(name, name, 3) == written
