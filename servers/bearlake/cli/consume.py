"""`bearlake consume`: records of a stream on standard output."""

import signal
import sys
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import click

from bearlake.cli.kafka_options import Outage, Progress, as_client_settings, bootstrap_option, client_option
from bearlake.cli.record_format import DEFAULT, Record, formatter
from bearlake.errors import Invalid, NotFound, Unavailable

POLL_S = 0.2
FETCH_COUNT = 1000
METADATA_TIMEOUT_S = 5.0


@click.command()
@click.argument("stream")
@bootstrap_option
@click.option("--from-beginning", is_flag=True, help="Start at the first record  [default: at new records].")
@click.option("--group", "-g", metavar="NAME", help="Consume as a member of this group, and commit offsets.")
@click.option("--max-messages", "-c", type=click.IntRange(1), metavar="COUNT", help="Stop after this many records.")
@click.option("--exit-at-end", "-e", is_flag=True, help="Stop at the end of all partitions (not with --group).")
@click.option("--idle-ms", type=click.IntRange(1), help="Stop after this many ms without a record.")
@click.option(
    "--format",
    "-f",
    "format_",
    default=DEFAULT,
    show_default=True,
    metavar="TEXT",
    help="json, or text with %t %p %o %T %k %v %h %K %V and \\n \\t, as in kcat.",
)
@click.option("--json", "as_json", is_flag=True, help="Same as --format json.")
@client_option
def consume(
    stream: str,
    bootstrap: str,
    from_beginning: bool,
    group: str | None,
    max_messages: int | None,
    exit_at_end: bool,
    idle_ms: int | None,
    format_: str,
    as_json: bool,
    client_settings: tuple[str, ...],
) -> int:
    """Write records of STREAM to standard output until Ctrl-C, or until an option ends it."""
    from bearlake.app import kafka_client

    if exit_at_end and group is not None:
        raise click.UsageError("--exit-at-end cannot be combined with --group; use --idle-ms")
    write = formatter("json" if as_json else format_)
    confluent = kafka_client.library()
    settings = {
        "group.id": group or "bearlake-consume",
        "enable.auto.commit": group is not None,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest" if from_beginning else "latest",
        "enable.partition.eof": exit_at_end,
        **as_client_settings(client_settings),
    }
    outage = Outage(confluent.KafkaError._ALL_BROKERS_DOWN, bootstrap)
    try:
        consumer = confluent.Consumer(kafka_client.common(bootstrap, error_cb=outage, **settings))
    except confluent.KafkaException as error:
        raise Invalid(error.args[0].str()) from error
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both end it cleanly, with the position committed
    try:
        start(consumer, confluent, bootstrap, stream, from_beginning, group)
        reader = _Reader(consumer, confluent, max_messages, idle_ms)
        progress = Progress("consumed", is_quiet=sys.stdout.isatty())
        for record in reader.records():
            outage.is_on = False
            sys.stdout.buffer.write(write(record))
            progress.show(reader.count)
        progress.end(reader.count)
        sys.stdout.buffer.flush()
    finally:
        consumer.close()
    return 0


def start(
    consumer: Any, confluent: ModuleType, bootstrap: str, stream: str, from_beginning: bool, group: str | None
) -> None:
    """Subscribe with a group, else take all partitions. Raises `NotFound`, `Unavailable`."""
    try:
        found = consumer.list_topics(stream, timeout=METADATA_TIMEOUT_S).topics[stream]
    except confluent.KafkaException as error:
        hint = "(--bootstrap, BEARLAKE_BOOTSTRAP)"
        raise Unavailable(f"no answer from {bootstrap}: {error.args[0].str()} {hint}") from error
    if not found.partitions:
        raise NotFound(f"no stream {stream!r} at {bootstrap}")
    if group is not None:
        consumer.subscribe([stream])
        return
    offset = confluent.OFFSET_BEGINNING if from_beginning else confluent.OFFSET_END
    consumer.assign([confluent.TopicPartition(stream, index, offset) for index in found.partitions])


class _Reader:
    """Polls a consumer until enough has come."""

    def __init__(self, consumer: Any, confluent: ModuleType, count_max: int | None, idle_ms: int | None) -> None:
        self._consumer = consumer
        self._eof = confluent.KafkaError._PARTITION_EOF
        self._retried = (confluent.KafkaError._TRANSPORT, confluent.KafkaError._ALL_BROKERS_DOWN)
        self._count_max = count_max
        self._idle_s = None if idle_ms is None else idle_ms / 1000
        self._at_end: set[int] = set()
        self.count = 0

    def records(self) -> Iterator[Record]:
        """Records as they come; ends as the options say. Raises `Unavailable` for errors that do not go away."""
        last = time.monotonic()
        while True:
            left = FETCH_COUNT if self._count_max is None else min(FETCH_COUNT, self._count_max - self.count)
            messages = self._consumer.consume(left, timeout=POLL_S)
            for message in messages:
                if not self._is_record(message):
                    continue
                self.count += 1
                self._consumer.store_offsets(message)
                yield record_of(message)
            now = time.monotonic()
            last = now if messages else last
            if not messages:
                sys.stdout.buffer.flush()
            if self.count == self._count_max or self._is_at_end() or self._is_idle(now - last):
                return

    def _is_record(self, message: Any) -> bool:
        error = message.error()
        if error is None:
            self._at_end.discard(message.partition())
            return True
        if error.code() == self._eof:
            self._at_end.add(message.partition())
        elif error.code() not in self._retried:
            raise Unavailable(error.str())
        return False

    def _is_at_end(self) -> bool:
        return bool(self._at_end) and len(self._at_end) == len(self._consumer.assignment())

    def _is_idle(self, idle_s: float) -> bool:
        return self._idle_s is not None and idle_s >= self._idle_s


def record_of(message: Any) -> Record:
    """A client's message as a `Record`."""
    kind, timestamp_ms = message.timestamp()
    return Record(
        stream=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=timestamp_ms if kind else -1,
        key=message.key(),
        value=message.value(),
        headers=message.headers() or (),
    )
