"""`bearlake produce`: lines of standard input, or whole files, become records."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from bearlake.cli.completion import stream_names
from bearlake.cli.kafka_options import Outage, as_client_settings, bootstrap_option, client_option
from bearlake.cli.output import print_json, say
from bearlake.cli.positions import time_ms
from bearlake.cli.progress import Progress
from bearlake.cli.record_format import Record
from bearlake.cli.record_source import Fixed, RecordSource, delimiter_of
from bearlake.cli.schema_options import Registry, encoder, registry_options
from bearlake.errors import Invalid

POLL_S = 0.2
FLUSHED_S = 1.0
"""Time (s) beyond that of a record in which its failure is reported."""
LOOKUP_S = 5.0
"""Longest time to find out why a record was refused."""
QUEUE_BYTES_MAX_KIB = 64 * 1024


@click.command()
@click.argument("stream", shell_complete=stream_names)
@bootstrap_option
@click.option(
    "--file",
    "files",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    help="Produce this file as one record, instead of standard input; repeatable.",
)
@click.option("--key", "-k", metavar="TEXT", help="Key of every record.")
@click.option("--key-separator", "-K", metavar="TEXT", help="Separator between key and value on each line.")
@click.option(
    "--delimiter",
    "-D",
    metavar="TEXT",
    default="\\n",
    show_default=True,
    help="End of each record; \\t, \\0 and others as usual.",
)
@click.option("--null", "-Z", "nulls", is_flag=True, help="Produce empty values as null, which deletes a key.")
@click.option("--partition", "-p", type=click.IntRange(0), help="Partition of all records  [default: by key].")
@click.option("--header", "-H", "headers", multiple=True, metavar="NAME=VALUE", help="Header of every record.")
@click.option("--timestamp", metavar="TIME", help="Timestamp of every record: ms since 1970, or ISO 8601.")
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
    "--value-schema",
    metavar="ID|latest",
    help="Values are JSON: serialize them by this schema, or by the newest one of STREAM-value.",
)
@click.option("--key-schema", metavar="ID|latest", help="The same for keys, and STREAM-key.")
@registry_options
@click.option(
    "--timeout-ms", type=click.IntRange(1), default=60_000, show_default=True, help="Longest time to deliver a record."
)
@click.option("--json", "as_json", is_flag=True, help="Print a summary as JSON on standard output.")
@client_option
def produce(
    stream: str,
    bootstrap: str,
    files: Sequence[Path],
    key: str | None,
    key_separator: str | None,
    delimiter: str,
    nulls: bool,
    partition: int | None,
    headers: Sequence[str],
    timestamp: str | None,
    compression: str,
    format_: str,
    value_schema: str | None,
    key_schema: str | None,
    registry: Registry,
    timeout_ms: int,
    as_json: bool,
    client_settings: tuple[str, ...],
) -> int:
    """Write each line of standard input to STREAM as one record.

    Exits with 0 only if every record was acknowledged.
    """
    from bearlake.app import kafka_client

    _check_options(format_, key, key_separator, bool(files))
    fixed = Fixed(
        partition=partition,
        key=None if key is None else key.encode(),
        timestamp_ms=None if timestamp is None else time_ms(timestamp),
        headers=[_header(text) for text in headers],
        are_empty_values_null=nulls,
    )
    separator = None if key_separator is None else delimiter_of(key_separator, "--key-separator")
    source = RecordSource(stream)
    found = (
        source.of_files(files)
        if files
        else source.of_pieces(sys.stdin.buffer, format_, delimiter_of(delimiter, "--delimiter"), separator)
    )
    confluent = kafka_client.library()
    settings = {
        "enable.idempotence": True,
        "compression.type": compression,
        "delivery.timeout.ms": timeout_ms,
        "linger.ms": 5,
        "queue.buffering.max.kbytes": QUEUE_BYTES_MAX_KIB,
        **as_client_settings(client_settings),
    }
    connection = kafka_client.common(bootstrap, **settings)
    sender = _Sender(confluent, connection, Progress("produced"), lambda: source.fraction)
    with ExitStack() as closing:
        records = map(fixed.of, found)
        if key_schema is not None or value_schema is not None:
            values = closing.enter_context(registry.opened())
            records = map(encoder(values, stream, key_schema, value_schema), records)
        sender.send_all(records, timeout_ms / 1000)
    if as_json:
        print_json({"stream": stream, "produced": sender.delivered_count, "failed": sender.failed_count})
    if sender.failed_count:
        what = "1 record was" if sender.failed_count == 1 else f"{sender.failed_count:,} records were"
        reason = sender.first_error
        if sender.is_denied and _is_imported(confluent, connection, stream):
            reason = f"{stream!r} is being imported; it takes other records after `bearlake import promote {stream}`"
        say(f"bearlake: {what} not delivered: {reason}", is_error=True)
        return 3 if sender.outage.is_on else 1
    return 0


def _check_options(format_: str, key: str | None, key_separator: str | None, has_files: bool) -> None:
    if format_ == "json" and key_separator is not None:
        raise click.UsageError(
            "--key-separator requires --format text; with --format json, the key is a field of the object"
        )
    if key is not None and key_separator is not None:
        raise click.UsageError("--key and --key-separator are mutually exclusive")
    if has_files and (format_ == "json" or key_separator is not None):
        raise click.UsageError("--file takes whole files as values: use --key instead of --key-separator or JSON")


class _Sender:
    """Sends records and counts their outcomes."""

    def __init__(
        self,
        confluent: ModuleType,
        settings: dict[str, Any],
        progress: Progress,
        fraction: Callable[[], float | None],
    ) -> None:
        self._confluent = confluent
        self.outage = Outage(confluent, settings["bootstrap.servers"])
        try:
            self._producer = confluent.Producer({**settings, "error_cb": self.outage})
        except confluent.KafkaException as error:
            raise Invalid(error.args[0].str()) from error
        self._advice = {
            confluent.KafkaError._UNKNOWN_PARTITION: "; `bearlake stream describe` shows the partitions",
            confluent.KafkaError.MSG_SIZE_TOO_LARGE: "; -X message.max.bytes=… allows more than 1 MB, up to the stream's max.message.bytes",
        }
        self._progress = progress
        self._fraction = fraction
        self.delivered_count = 0
        self.failed_count = 0
        self.first_error = ""
        self.is_denied = False
        """Whether a record was refused as if the right to write were missing: Kafka's protocol has no other word for an import."""

    def send_all(self, records: Iterator[Record], timeout_s: float) -> None:
        """Send everything and wait until each record's outcome is known. Raises `Denied` if the server refuses the login."""
        for record in records:
            self._send(record)
            self._progress.show(self.delivered_count, self._fraction())
        begun = time.monotonic()
        while (left := self._producer.flush(POLL_S)) and (passed_s := time.monotonic() - begun) < timeout_s + FLUSHED_S:
            self.outage.check()
            self.outage.waited(passed_s)
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
                self.outage.check()
            except self._confluent.KafkaException as error:
                self._fail(error.args[0])
                return

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is None:
            self.delivered_count += 1
            self.outage.answered()
        else:
            self._fail(error)

    def _fail(self, error: Any) -> None:
        self.failed_count += 1
        self.is_denied = self.is_denied or error.code() == self._confluent.KafkaError.TOPIC_AUTHORIZATION_FAILED
        self.first_error = self.first_error or error.str() + self._advice.get(error.code(), "")


def _is_imported(confluent: ModuleType, connection: dict[str, Any], stream: str) -> bool:
    """Whether an import owns the stream; False if that cannot be known, for example without the right to describe its configs."""
    from bearlake.streams.configs import IMPORT_SOURCE

    resource = confluent.admin.ConfigResource(confluent.admin.ResourceType.TOPIC, stream)
    client = confluent.admin.AdminClient(connection)
    try:
        found = client.describe_configs([resource], request_timeout=LOOKUP_S)[resource].result(LOOKUP_S)
    except (confluent.KafkaException, TimeoutError):
        return False
    return IMPORT_SOURCE in found and bool(found[IMPORT_SOURCE].value)


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--header {text}: expected NAME=VALUE")
    return name, value.encode()
