"""Where `consume` starts and stops: the words of `--offset`, as in kcat, resolved to offsets of partitions.

beginning   end   stored      the first record; new records; where the group stands
1200        -100              this offset; the last 100 records of each partition
s@TIME      e@TIME            from this time on; up to this time. TIME is ms since 1970, or ISO 8601 (UTC without a zone)
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import click

from bearlake.errors import Unavailable

LOOK_UP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """Start and stop. At most one of `offset`, `start_ms` and `is_beginning` is set; none: new records."""

    is_beginning: bool = False
    offset: int | None = None
    """From 0 on: an offset. Negative: so many records before the end."""
    start_ms: int | None = None
    end_ms: int | None = None

    @property
    def needs_partitions(self) -> bool:
        """Whether the positions are more than a group can have."""
        return self.offset is not None or self.start_ms is not None or self.end_ms is not None


def parse_positions(texts: Sequence[str], from_beginning: bool) -> Positions:
    """Return what the options say. Raises `click.UsageError`."""
    start: dict[str, Any] = {"is_beginning": True} if from_beginning else {}
    end_ms = None
    for text in texts:
        if text.startswith("e@"):
            end_ms = time_ms(text[2:])
            continue
        if start:
            raise click.UsageError("--offset: expected one start, and at most one e@TIME")
        start = _start(text)
    return Positions(end_ms=end_ms, is_beginning=start.get("is_beginning", False), **_without(start, "is_beginning"))


def _start(text: str) -> dict[str, Any]:
    if text == "beginning":
        return {"is_beginning": True}
    if text in ("end", "stored"):
        return {"is_beginning": False}
    if text.startswith("s@"):
        return {"start_ms": time_ms(text[2:])}
    try:
        return {"offset": int(text)}
    except ValueError:
        raise click.UsageError(
            f"--offset {text}: expected beginning, end, stored, a number, -N for the last N, s@TIME or e@TIME"
        ) from None


def time_ms(text: str) -> int:
    """Return a time in ms since 1970. Raises `click.UsageError`."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"{text!r} is no time: expected ms since 1970, or a time such as 2026-01-31T12:00:00"
        ) from None
    return int((found if found.tzinfo else found.replace(tzinfo=datetime.UTC)).timestamp() * 1000)


def _without(pairs: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in pairs.items() if key != name}


class Resolver:
    """Looks up the offsets of partitions in a client's cluster."""

    def __init__(self, consumer: Any, confluent: ModuleType, stream: str) -> None:
        self._consumer = consumer
        self._confluent = confluent
        self._stream = stream

    def starts(self, positions: Positions, partitions: Sequence[int]) -> list[Any]:
        """Return the client's partitions with the offsets to start at. Raises `Unavailable`."""
        make = self._confluent.TopicPartition
        if positions.start_ms is not None:
            return self._at_times(partitions, positions.start_ms)
        if positions.offset is None:
            known = self._confluent.OFFSET_BEGINNING if positions.is_beginning else self._confluent.OFFSET_END
            return [make(self._stream, index, known) for index in partitions]
        if positions.offset >= 0:
            return [make(self._stream, index, positions.offset) for index in partitions]
        found = []
        for index in partitions:
            start, end = self._bounds(index)
            found.append(make(self._stream, index, max(start, end + positions.offset)))
        return found

    def ends(self, positions: Positions, partitions: Sequence[int]) -> dict[int, int]:
        """Return the offsets to stop before, by partition; empty without an end. Without a later record it is the end as of now."""
        if positions.end_ms is None:
            return {}
        found = {}
        for partition in self._at_times(partitions, positions.end_ms):
            is_known = partition.offset >= 0
            found[partition.partition] = partition.offset if is_known else self._bounds(partition.partition)[1]
        return found

    def _at_times(self, partitions: Sequence[int], at_ms: int) -> list[Any]:
        make = self._confluent.TopicPartition
        asked = [make(self._stream, index, at_ms) for index in partitions]
        try:
            found: list[Any] = self._consumer.offsets_for_times(asked, timeout=LOOK_UP_TIMEOUT_S)
        except self._confluent.KafkaException as error:
            raise Unavailable(f"cannot look up offsets by time: {error.args[0].str()}") from error
        for partition in found:
            if partition.error is not None:
                raise Unavailable(f"cannot look up offsets of partition {partition.partition}: {partition.error.str()}")
        return found

    def _bounds(self, index: int) -> tuple[int, int]:
        partition = self._confluent.TopicPartition(self._stream, index)
        try:
            bounds = self._consumer.get_watermark_offsets(partition, timeout=LOOK_UP_TIMEOUT_S)
        except self._confluent.KafkaException as error:
            raise Unavailable(f"cannot look up the offsets of partition {index}: {error.args[0].str()}") from error
        if bounds is None:
            raise Unavailable(f"cannot look up the offsets of partition {index}: no answer")
        start, end = bounds
        return start, end
