"""Every reader reads the records of every other protocol: keys, values, headers, timestamps, at the same offsets, in order.

One running `bearlake up`; every writer has its stream, which every reader reads. A protocol omits what it cannot express
(`docs/protocols.md`); the log keeps it, and other readers show it.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from fixtures.protocol_clients import Addresses, Item, Reader, Writer
from fixtures.protocol_items import READERS, WRITERS, create, write_all
from fixtures.pulsar_protocol_client import without_reserved
from fixtures.server_process import started

pytestmark = pytest.mark.integration

PAGE_NAMES = {
    "kafka": "Kafka",
    "rest-v2": "REST v2",
    "rest-v3": "REST v3",
    "tailing": "`/v1/stream`",
    "tailing-events": "`/v1/stream`, events",
    "grpc": "gRPC",
    "pulsar": "Pulsar",
}
"""How `docs/protocols.md` calls them."""


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    folder = tmp_path_factory.mktemp("matrix")
    words = ("up", "--data-dir", folder / "data", "--no-tour")
    with started(*words, ready_file=folder / "ready.json") as server:
        yield Addresses(
            kafka=server.kafka,
            rest=str(server.ready["rest"]).removeprefix("http://"),
            grpc=str(server.ready["grpc"]),
            pulsar=str(server.ready["pulsar"]),
        )


@cache
def written(at: Addresses, writer: Writer) -> tuple[str, list[Item]]:
    """The stream that the writer wrote, and the items that the stream should hold."""
    stream = f"by-{writer.name}"
    return stream, write_all(at, writer, stream)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: f"read-by-{reader.name}")
@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: f"written-by-{writer.name}")
def test_records_of_one_protocol_are_read_by_another(at: Addresses, writer: Writer, reader: Reader) -> None:
    stream, stored = written(at, writer)
    expected = [replace(reader.shown(item), offset=item.offset) for item in stored]
    found = [without_reserved(item) for item in reader.read(at, stream, len(stored))]

    assert len(stored) >= 11
    for read_item, wanted in zip(found, expected, strict=True):
        assert read_item == wanted


@pytest.mark.timeout(180)
def test_every_protocol_sees_the_same_order_of_what_all_wrote_at_once(at: Addresses) -> None:
    create(at, "by-all")
    per_writer = 20
    batches = {
        writer.name: [Item(value=f"{writer.name} {n};".encode()) for n in range(per_writer)] for writer in WRITERS
    }
    with ThreadPoolExecutor(len(WRITERS)) as threads:
        jobs = {
            writer.name: threads.submit(
                lambda writer: [
                    offset for item in batches[writer.name] for offset in writer.write(at, "by-all", [item])
                ],
                writer,
            )
            for writer in WRITERS
        }
        offsets = {name: job.result() for name, job in jobs.items()}
    count = per_writer * len(WRITERS)
    by_offset = {
        offset: item.value for name, told in offsets.items() for offset, item in zip(told, batches[name], strict=True)
    }
    expected = [by_offset[offset] for offset in range(count)]
    seen = {reader.name: [item.value for item in reader.read(at, "by-all", count)] for reader in READERS}

    assert len(by_offset) == count  # no offset was given twice
    assert all(told == sorted(told) for told in offsets.values())  # a writer's own order is kept
    assert seen == {reader.name: expected for reader in READERS}


def test_the_page_of_protocols_has_a_row_for_each_writer_and_reader() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "protocols.md").read_text(encoding="utf-8")
    writers, readers = page.split("## What a reader gets")

    for clients, rows in ((WRITERS, writers), (READERS, readers)):
        for client in clients:
            assert f"\n| {PAGE_NAMES[client.name]}" in rows, client.name
