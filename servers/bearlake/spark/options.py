"""The options of a query. Names and meanings are those of spark-sql-kafka, as far as it has them.

Options of Kafka's clients (`kafka.…`) mean nothing here, because no broker is asked: a query of spark-sql-kafka needs another format and
the option that names the stores. An unknown option is an error, and so is one that would change what is read.

Source: Spark, "Structured Streaming + Kafka Integration Guide".
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from bearlake.errors import Invalid

EARLIEST: Final = -2
"""The start offset, in place of an offset."""
LATEST: Final = -1
"""The last stable offset, in place of an offset."""

Given = Mapping[str, Mapping[int, int]]
"""Offsets or times (ms) by stream and partition."""

_STORES: Final = {
    "metadataurl": "metadata.url",
    "objectstoreurl": "object_store.url",
    "catalogurl": "tables.catalog_url",
}
_KNOWN: Final = {
    "datadir", "config", *_STORES, "subscribe", "subscribepattern", "assign", "columns", "includeheaders", "startingoffsets",
    "endingoffsets", "startingtimestamp", "endingtimestamp", "startingoffsetsbytimestamp", "endingoffsetsbytimestamp",
    "startingoffsetsbytimestampstrategy", "failondataloss", "maxoffsetspertrigger", "maxbytespertrigger", "minpartitions",
}  # fmt: skip
_IGNORED: Final = ("kafka.", "fetchoffset.", "kafkaconsumer.", "groupidprefix")


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Where the stores are: a data folder of `bearlake up`, a settings file, or single URLs (dotted path of the setting, URL)."""

    data_dir: Path | None
    config: Path | None
    urls: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Bound:
    """Where reading begins or ends: by partition, else `default` (`EARLIEST`, `LATEST`). `is_time`: values are times (ms), not offsets."""

    default: int
    given: Given = field(default_factory=dict)
    is_time: bool = False
    time_ms: int | None = None
    """The time of all partitions."""

    def of(self, stream: str, partition: int) -> int:
        """Return the offset, `EARLIEST` or `LATEST`; with `is_time`, the time (ms), or the same for a partition that is not given."""
        if self.time_ms is not None:
            return self.time_ms
        return self.given.get(stream, {}).get(partition, self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What to read. Exactly one of `names`, `pattern` and `assigned` is set."""

    stores: StoreOptions
    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[tuple[str, tuple[int, ...]], ...] = ()
    columns: Literal["raw", "typed"] = "raw"
    has_headers: bool = False
    starting: Bound | None = None
    """None: earliest for a batch query, latest for a stream."""
    ending: Bound = Bound(LATEST)
    is_latest_if_late: bool = False
    """Whether a partition without records at or after the starting time begins at its end; else that is an error."""
    fails_on_data_loss: bool = True
    offsets_max: int | None = None
    """Offsets of one micro-batch; None: any number."""
    bytes_max: int | None = None
    """Bytes of one micro-batch, as stored; None: any number."""
    partition_count_min: int | None = None
    """Tasks of a query or micro-batch, if there are so many offsets; None: one for each partition."""


def parse(given: Mapping[str, str]) -> ReadOptions:
    """Parse the options, whose names may have any case. Raises `Invalid`, which names the option."""
    found = {name.lower(): text for name, text in given.items()}
    for name, text in found.items():
        if name == "kafka.isolation.level" and text != "read_committed":
            raise Invalid("option kafka.isolation.level: only read_committed can be read")
        if name not in _KNOWN and not name.startswith(_IGNORED):
            raise Invalid(f"unknown option {name}; options are {', '.join(sorted(_KNOWN))}")
    subscribed = [name for name in ("subscribe", "subscribepattern", "assign") if name in found]
    if len(subscribed) != 1:
        raise Invalid("exactly one of the options subscribe, subscribePattern and assign must be set")
    columns = found.get("columns", "raw")
    if columns not in ("raw", "typed"):
        raise Invalid(f"option columns: {columns!r} is neither raw nor typed")
    options = ReadOptions(
        stores=_stores(found),
        names=tuple(filter(None, (name.strip() for name in found.get("subscribe", "").split(",")))),
        pattern=_pattern(found.get("subscribepattern")),
        assigned=_assigned(found.get("assign")),
        columns="typed" if columns == "typed" else "raw",
        has_headers=_boolean(found, "includeHeaders", default=False),
        starting=_bound(found, "starting"),
        ending=_bound(found, "ending") or Bound(LATEST),
        is_latest_if_late=_strategy(found),
        fails_on_data_loss=_boolean(found, "failOnDataLoss", default=True),
        offsets_max=_count(found, "maxOffsetsPerTrigger"),
        bytes_max=_count(found, "maxBytesPerTrigger"),
        partition_count_min=_count(found, "minPartitions"),
    )
    if subscribed == ["subscribe"] and not options.names:
        raise Invalid("option subscribe names no stream")
    if options.columns == "typed" and (options.pattern is not None or len(options.names) + len(options.assigned) != 1):
        raise Invalid("option columns: only the columns of one stream can be typed; name it with subscribe or assign")
    return options


def _stores(found: Mapping[str, str]) -> StoreOptions:
    urls = tuple((path, found[name]) for name, path in _STORES.items() if name in found)
    folder, config = found.get("datadir"), found.get("config")
    if folder is None and config is None and not {"metadataurl", "objectstoreurl"} <= found.keys():
        raise Invalid("no option names the stores: set dataDir, config, or metadataUrl and objectStoreUrl")
    return StoreOptions(None if folder is None else Path(folder), None if config is None else Path(config), urls)


def _pattern(text: str | None) -> str | None:
    try:
        if text is not None:
            re.compile(text)
    except re.error as error:
        raise Invalid(f"option subscribePattern: {error}") from error
    return text


def _assigned(text: str | None) -> tuple[tuple[str, tuple[int, ...]], ...]:
    if text is None:
        return ()
    try:
        return tuple((str(name), tuple(sorted(map(int, indexes)))) for name, indexes in json.loads(text).items())
    except (ValueError, TypeError, AttributeError) as error:
        raise Invalid('option assign: expected JSON such as {"orders": [0, 1]}') from error


def _bound(found: Mapping[str, str], side: Literal["starting", "ending"]) -> Bound | None:
    """Return where reading begins or ends; the most particular option wins, as in Spark: a time, then times, then offsets."""
    default = EARLIEST if side == "starting" else LATEST
    if f"{side}timestamp" in found:
        time_ms = _number(found, f"{side}Timestamp")
        if time_ms < 0:
            raise Invalid(f"option {side}Timestamp: {time_ms} is negative")
        return Bound(default, is_time=True, time_ms=time_ms)
    if (text := found.get(f"{side}offsetsbytimestamp")) is not None:
        return Bound(default, _by_partition(text, f"{side}OffsetsByTimestamp", value_min=0), is_time=True)
    text = found.get(f"{side}offsets")
    if text is None:
        return None
    if text.lower() in ("earliest", "latest"):
        if side == "ending" and text.lower() == "earliest":
            raise Invalid("option endingOffsets: earliest would read nothing")
        return Bound(EARLIEST if text.lower() == "earliest" else LATEST)
    value_min = EARLIEST if side == "starting" else LATEST
    return Bound(default, _by_partition(text, f"{side}Offsets", value_min=value_min))


def _by_partition(text: str, name: str, *, value_min: int) -> Given:
    try:
        fields: dict[str, dict[str, int]] = json.loads(text)
        found = {
            str(stream): dict(sorted((int(index), int(value)) for index, value in of.items()))
            for stream, of in fields.items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise Invalid(f'option {name}: expected JSON such as {{"orders": {{"0": 23}}}}') from error
    if small := [value for of in found.values() for value in of.values() if value < value_min]:
        raise Invalid(f"option {name}: {small[0]} is less than {value_min}")
    return found


def _strategy(found: Mapping[str, str]) -> bool:
    text = found.get("startingoffsetsbytimestampstrategy", "error").lower()
    if text not in ("error", "latest"):
        raise Invalid(f"option startingOffsetsByTimestampStrategy: {text!r} is neither error nor latest")
    return text == "latest"


def _boolean(found: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = found.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise Invalid(f"option {name}: {text!r} is neither true nor false")
    return text == "true"


def _number(found: Mapping[str, str], name: str) -> int:
    try:
        return int(found[name.lower()])
    except ValueError as error:
        raise Invalid(f"option {name}: {found[name.lower()]!r} is not a whole number") from error


def _count(found: Mapping[str, str], name: str) -> int | None:
    if name.lower() not in found:
        return None
    if (number := _number(found, name)) < 1:
        raise Invalid(f"option {name}: {number} is not positive")
    return number
