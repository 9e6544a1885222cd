"""`bearlake consume`: records of a stream on standard output."""

import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from types import ModuleType
from typing import Any

import click

from bearlake.cli.completion import group_names, stream_names
from bearlake.cli.filters import Filter, record_filter
from bearlake.cli.kafka_options import Outage, as_client_settings, bootstrap_option, client_option
from bearlake.cli.positions import Positions, Resolver, parse_positions
from bearlake.cli.progress import Progress
from bearlake.cli.record_format import DEFAULT, Record, formatter
from bearlake.cli.schema_options import Registry, decoded, registry_options
from bearlake.errors import Denied, Invalid, NotFound, Unavailable

POLL_S = 0.2
FETCH_COUNT = 1000
METADATA_TIMEOUTS_S = (0.25, 0.5, 1.0, 3.25)


@click.command()
@click.argument("stream", shell_complete=stream_names)
@bootstrap_option
@click.option("--from-beginning", is_flag=True, help="Start at the first record  [default: at new records].")
@click.option(
    "--offset",
    "-o",
    "offsets",
    multiple=True,
    metavar="WHERE",
    help="Where to start: beginning, end, an offset, -N (the last N of each partition) or s@TIME. e@TIME: where to stop.",
)
@click.option(
    "--partition", "-p", "partitions", type=click.IntRange(0), multiple=True, help="Only this partition; repeatable."
)
@click.option(
    "--group",
    "-g",
    metavar="NAME",
    shell_complete=group_names,
    help="Consume as a member of this group, and commit offsets.",
)
@click.option("--filter-key", metavar="REGEX", help="Only records whose key matches.")
@click.option("--filter-value", metavar="REGEX", help="Only records whose value matches.")
@click.option(
    "--filter-header", "filter_headers", multiple=True, metavar="NAME[=REGEX]", help="Only records with such a header."
)
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
@click.option(
    "--schemas", "has_schemas", is_flag=True, help="Show keys and values that name a schema of the registry as JSON."
)
@registry_options
@click.option("--raw", is_flag=True, help="Write control characters to a terminal as they are.")
@client_option
def consume(
    stream: str,
    bootstrap: str,
    from_beginning: bool,
    offsets: tuple[str, ...],
    partitions: tuple[int, ...],
    group: str | None,
    filter_key: str | None,
    filter_value: str | None,
    filter_headers: tuple[str, ...],
    max_messages: int | None,
    exit_at_end: bool,
    idle_ms: int | None,
    format_: str,
    as_json: bool,
    has_schemas: bool,
    registry: Registry,
    raw: bool,
    client_settings: tuple[str, ...],
) -> int:
    """Write records of STREAM to standard output.

    The command ends at Ctrl-C, or when an option says so. TIME is ms since 1970, or such as 2026-01-31T12:00:00 (UTC without a zone).
    On a terminal, control characters are escaped.
    """
    from bearlake.app import kafka_client

    positions = parse_positions(offsets, from_beginning)
    if group is not None:
        _check_group(exit_at_end, bool(partitions), positions)
    is_terminal = sys.stdout.isatty()
    write = formatter("json" if as_json else format_, escapes=is_terminal and not raw)
    passes = record_filter(filter_key, filter_value, filter_headers)
    confluent = kafka_client.library()
    settings = {
        "group.id": group or "bearlake-consume",
        "enable.auto.commit": group is not None,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest" if positions.is_beginning else "latest",
        "enable.partition.eof": exit_at_end or positions.end_ms is not None,
        **as_client_settings(client_settings),
    }
    outage = Outage(confluent, bootstrap)
    try:
        consumer = confluent.Consumer(kafka_client.common(bootstrap, error_cb=outage, **settings))
    except confluent.KafkaException as error:
        raise Invalid(error.args[0].str()) from error
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both end it cleanly, with the position committed
    with ExitStack() as closing:
        closing.callback(consumer.close)
        decode = partial(decoded, closing.enter_context(registry.opened())) if has_schemas else list
        ends = start(consumer, confluent, outage, bootstrap, stream, positions, partitions, group)
        reader = _Reader(consumer, confluent, max_messages, idle_ms, ends, passes, decode, has_group=group is not None)
        progress = Progress("consumed", is_quiet=is_terminal)
        for record in reader.records():
            outage.answered()
            sys.stdout.buffer.write(write(record))
            progress.show(reader.count)
        progress.end(reader.count)
        sys.stdout.buffer.flush()
    return 0


def _check_group(exit_at_end: bool, has_partitions: bool, positions: Positions) -> None:
    """A group decides about partitions and positions. Raises `click.UsageError`."""
    if exit_at_end:
        raise click.UsageError("--exit-at-end cannot be combined with --group; use --idle-ms")
    if has_partitions:
        raise click.UsageError("--partition cannot be combined with --group, which assigns the partitions")
    if positions.needs_partitions:
        raise click.UsageError(
            "--offset with a number or a time cannot be combined with --group, which has its own position"
        )


def start(
    consumer: Any,
    confluent: ModuleType,
    outage: Outage,
    bootstrap: str,
    stream: str,
    positions: Positions,
    partitions: Sequence[int],
    group: str | None,
) -> dict[int, int]:
    """Subscribe with a group, else take these partitions (empty: all). Returns where to stop, by partition.

    Raises `Denied`, `NotFound`, `Unavailable`.
    """
    found = _metadata(consumer, confluent, outage, stream)
    if found.error is not None and found.error.code() == confluent.KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise Denied(f"{stream}: {found.error.str()}")
    if not found.partitions:
        raise NotFound(f"no stream {stream!r} at {bootstrap}: `bearlake stream list` shows all streams")
    if group is not None:
        consumer.subscribe([stream])
        return {}
    taken = sorted(set(partitions)) or sorted(found.partitions)
    if missing := set(taken) - set(found.partitions):
        raise NotFound(
            f"stream {stream!r} has partitions 0 to {len(found.partitions) - 1}, but no {', '.join(map(str, sorted(missing)))}"
        )
    resolver = Resolver(consumer, confluent, stream)
    ends = resolver.ends(positions, taken)
    consumer.assign(resolver.starts(positions, taken))
    return ends


def _metadata(consumer: Any, confluent: ModuleType, outage: Outage, stream: str) -> Any:
    """Return the stream's metadata. Raises `Denied`, `Unavailable`.

    Only a poll reports a refused login, so each try takes longer than the one before: the first is over before the client has used up
    the limit of failed logins, and the last leaves time for a distant server.
    """
    for timeout_s in METADATA_TIMEOUTS_S:
        try:
            found = consumer.list_topics(stream, timeout=timeout_s).topics[stream]
        except confluent.KafkaException as error:
            failure = error
            consumer.poll(0)
            outage.check()
        else:
            outage.answered()
            return found
    raise Unavailable(outage.text) from failure


class _Reader:
    """Polls a consumer until enough has come."""

    def __init__(
        self,
        consumer: Any,
        confluent: ModuleType,
        count_max: int | None,
        idle_ms: int | None,
        ends: Mapping[int, int],
        passes: Filter | None,
        decode: Callable[[Sequence[Record]], Sequence[Record]] = list,
        *,
        has_group: bool = True,
    ) -> None:
        """`ends`: the offset before which a partition ends, if it does. `passes`: which decoded records count; None: all.

        has_group: without one, it does not matter that the client may not use the group that the library asks for.
        """
        self._decode = decode
        self._consumer = consumer
        self._ends = ends
        self._passes = passes
        self._eof = confluent.KafkaError._PARTITION_EOF
        self._ignored = {confluent.KafkaError._TRANSPORT, confluent.KafkaError._ALL_BROKERS_DOWN}
        self._denials = {confluent.KafkaError.TOPIC_AUTHORIZATION_FAILED}
        (self._denials if has_group else self._ignored).add(confluent.KafkaError.GROUP_AUTHORIZATION_FAILED)
        self._count_max = count_max
        self._idle_s = None if idle_ms is None else idle_ms / 1000
        self._at_end: set[int] = set()
        self.count = 0

    def records(self) -> Iterator[Record]:
        """Records as they come; ends as the options say. Raises `Unavailable` for errors that do not go away."""
        last = time.monotonic()
        while True:
            left = FETCH_COUNT if self._count_max is None else min(FETCH_COUNT, self._count_max - self.count)
            polled = self._consumer.consume(left, timeout=POLL_S)
            messages = [message for message in polled if self._is_record(message)]
            records = self._decode([record_of(message) for message in messages])
            for message, record in zip(messages, records, strict=True):
                self._consumer.store_offsets(message)
                if self._passes is None or self._passes(record):
                    self.count += 1
                    yield record
            now = time.monotonic()
            last = now if polled else last
            if not polled:
                sys.stdout.buffer.flush()
            if self.count == self._count_max or self._is_at_end() or self._is_idle(now - last):
                return

    def _is_record(self, message: Any) -> bool:
        error = message.error()
        if error is None:
            return self._is_before_end(message.partition(), message.offset())
        if error.code() == self._eof:
            self._at_end.add(message.partition())
        elif error.code() in self._denials:
            raise Denied(error.str())
        elif error.code() not in self._ignored:
            raise Unavailable(error.str())
        return False

    def _is_before_end(self, partition: int, offset: int) -> bool:
        """Note what a record says about the end of its partition; returns whether the record is before it."""
        end = self._ends.get(partition)
        if end is None:
            self._at_end.discard(partition)
            return True
        if offset + 1 >= end:
            self._at_end.add(partition)
        return offset < end

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
