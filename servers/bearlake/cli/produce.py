"""`bearlake produce`: lines of standard input become records."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any, BinaryIO

import click

from bearlake.cli.kafka_options import Outage, Progress, as_client_settings, bootstrap_option, client_option
from bearlake.cli.output import print_json, say
from bearlake.cli.record_format import Record, from_json
from bearlake.errors import Invalid

LINE_BYTES_MAX = 64 * 1024 * 1024
QUEUE_BYTES_MAX_KIB = 64 * 1024


@click.command()
@click.argument("stream")
@bootstrap_option
@click.option("--key-separator", "-K", metavar="TEXT", help="Separator between key and value on each line.")
@click.option("--partition", "-p", type=click.IntRange(0), help="Partition of all records  [default: by key].")
@click.option("--header", "-H", "headers", multiple=True, metavar="NAME=VALUE", help="Header of every record.")
@click.option(
    "--compression",
    "-z",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="Compression of batches.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="text: a line is a value. json: a line is an object with key, value, headers, partition, timestamp_ms.",
)
@click.option(
    "--timeout-ms", type=click.IntRange(1), default=60_000, show_default=True, help="Longest time to deliver a record."
)
@click.option("--json", "as_json", is_flag=True, help="Print a summary as JSON on standard output.")
@client_option
def produce(
    stream: str,
    bootstrap: str,
    key_separator: str | None,
    partition: int | None,
    headers: Sequence[str],
    compression: str,
    format_: str,
    timeout_ms: int,
    as_json: bool,
    client_settings: tuple[str, ...],
) -> int:
    """Write each line of standard input to STREAM as one record.

    Exits with 0 only if every record was acknowledged.
    """
    from bearlake.app import kafka_client

    if format_ == "json" and key_separator is not None:
        raise click.UsageError(
            "--key-separator requires --format text; with --format json, the key is a field of the object"
        )
    confluent = kafka_client.library()
    source = sys.stdin.buffer
    fixed = [_header(text) for text in headers]
    records = (
        replace(
            record,
            headers=[*record.headers, *fixed],
            partition=partition if partition is not None else record.partition,
        )
        for record in _records(source, stream, format_, key_separator)
    )
    settings = {
        "enable.idempotence": True,
        "compression.type": compression,
        "delivery.timeout.ms": timeout_ms,
        "linger.ms": 5,
        "queue.buffering.max.kbytes": QUEUE_BYTES_MAX_KIB,
        **as_client_settings(client_settings),
    }
    sender = _Sender(confluent, kafka_client.common(bootstrap, **settings), Progress("produced", is_quiet=False))
    sender.send_all(records, timeout_ms / 1000)
    if as_json:
        print_json({"stream": stream, "produced": sender.delivered_count, "failed": sender.failed_count})
    if sender.failed_count:
        say(f"bearlake: {sender.failed_count} records were not delivered: {sender.first_error}", is_error=True)
        return 3 if sender.outage.is_on else 1
    return 0


class _Sender:
    """Sends records and counts their outcomes."""

    def __init__(self, confluent: ModuleType, settings: dict[str, Any], progress: Progress) -> None:
        self._confluent = confluent
        self.outage = Outage(confluent.KafkaError._ALL_BROKERS_DOWN, settings["bootstrap.servers"])
        try:
            self._producer = confluent.Producer({**settings, "error_cb": self.outage})
        except confluent.KafkaException as error:
            raise Invalid(error.args[0].str()) from error
        self._progress = progress
        self.delivered_count = 0
        self.failed_count = 0
        self.first_error = ""

    def send_all(self, records: Iterator[Record], timeout_s: float) -> None:
        """Send everything and wait until each record's outcome is known."""
        for record in records:
            self._send(record)
            self._progress.show(self.delivered_count)
        left = self._producer.flush(timeout_s + 1)
        self.failed_count += left
        self._progress.end(self.delivered_count)

    def _send(self, record: Record) -> None:
        more = {"timestamp": record.timestamp_ms} if record.timestamp_ms >= 0 else {}
        while True:
            try:
                self._producer.produce(
                    record.stream,
                    value=record.value,
                    key=record.key,
                    partition=record.partition,
                    headers=list(record.headers),
                    on_delivery=self._on_delivery,
                    **more,
                )
                self._producer.poll(0)
                return
            except BufferError:  # the client's queue is full: let it drain, so that memory stays bounded
                self._producer.poll(0.1)
            except self._confluent.KafkaException as error:
                self._fail(error.args[0])
                return

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is None:
            self.delivered_count += 1
            self.outage.is_on = False
        else:
            self._fail(error)

    def _fail(self, error: Any) -> None:
        self.failed_count += 1
        self.first_error = self.first_error or error.str()


def _records(source: BinaryIO, stream: str, format_: str, key_separator: str | None) -> Iterator[Record]:
    separator = None if key_separator is None else key_separator.encode().decode("unicode_escape").encode()
    for number, line in enumerate(iter(lambda: source.readline(LINE_BYTES_MAX), b""), start=1):
        text = line.removesuffix(b"\n")
        try:
            yield from_json(text, stream) if format_ == "json" else _split(text, stream, separator)
        except Invalid as error:
            raise Invalid(f"line {number}: {error}") from error


def _split(line: bytes, stream: str, separator: bytes | None) -> Record:
    if separator is None:
        return Record(stream=stream, value=line)
    key, found, value = line.partition(separator)
    return Record(stream=stream, key=key, value=value) if found else Record(stream=stream, value=line)


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--header {text}: expected NAME=VALUE")
    return name, value.encode()
