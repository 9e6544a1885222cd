"""Every client reads the records of every other client unchanged, whichever client compressed and framed them."""

import uuid

import pytest

from clients.messages import Client, Message, by_content
from clients.registry import CLIENTS, Unavailable, obtain

pytestmark = [
    pytest.mark.integration,
    # Warnings of third-party libraries are not ours to fix.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def written_by_all(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Message]]:
    """A topic with records of every available client, and these records; gzip, because all clients can read it."""
    topic = f"clients-all-{uuid.uuid4().hex[:12]}"
    written: list[Message] = []
    for name in CLIENTS:
        try:
            writer = obtain(name, bootstrap, tmp_path_factory.mktemp(name))
        except Unavailable:
            continue  # its own tests report that it is missing
        if not written:
            writer.create_topic(topic, 3)
        messages = _messages(name)
        for compression in ("none", "gzip"):
            writer.produce(topic, messages, compression)
            written += messages
    return topic, written


def test_a_client_reads_the_records_of_all_clients(client: Client, written_by_all: tuple[str, list[Message]]) -> None:
    topic, written = written_by_all

    read = client.consume(topic, f"{topic}-{type(client).__name__}-{uuid.uuid4().hex[:8]}", len(written))

    assert by_content(read) == by_content(written)


def _messages(writer: str) -> list[Message]:
    headers = (("writer", writer.encode()), ("text", "grüße".encode()))
    plain = [Message(f"{writer} {number}".encode(), b"%d" % number, headers) for number in range(20)]
    return [*plain, Message(None, writer.encode(), headers), Message(writer.encode(), None, headers)]
