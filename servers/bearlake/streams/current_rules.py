"""The rules of a stream's current table, from its configs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bearlake.metadata.model import Stream
from bearlake.streams import configs as stream_configs
from bearlake.streams.key_compaction_rules import key_compaction_rules
from bearlake.table import naming


class Envelope(StrEnum):
    """What the values of a stream are to its current table."""

    NONE = "none"
    DEBEZIUM = "debezium"


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentRules:
    """Rules of a current table; times in ms.

    `remember_ms`: how long, by the timestamps of records, a deleted key is remembered. `loses_tombstones`: key compaction takes tombstones
    out of the table from which the current one is made.
    """

    bucket_count: int
    envelope: Envelope
    freshness_ms: int
    remember_ms: int
    loses_tombstones: bool


def current_rules(configs: Mapping[str, str]) -> CurrentRules | None:
    """Parse the rules from a stream's configs, which must be checked already; None: it has no current table."""
    if stream_configs.value(configs, "table.current") != "on":
        return None
    if stream_configs.value(configs, "table.enable").lower() != "true":
        return None
    cleaning = key_compaction_rules(configs)
    return CurrentRules(
        bucket_count=int(stream_configs.value(configs, "table.current.buckets")),
        envelope=Envelope(stream_configs.value(configs, "table.current.envelope")),
        freshness_ms=int(stream_configs.value(configs, "table.current.freshness_ms")),
        remember_ms=int(stream_configs.value(configs, "delete.retention.ms")),
        loses_tombstones=cleaning is not None and not cleaning.keeps_history,
    )


def current_stream(stream: Stream) -> Stream:
    """Return the stream derived for the current table of `stream`."""
    return naming.current_stream(stream, is_enabled=current_rules(stream.configs) is not None)


def with_current(streams: Sequence[Stream]) -> list[Stream]:
    """Return the streams, and those derived for their current tables. The name of a stream always means that stream."""
    names = {stream.name for stream in streams}
    derived = [current_stream(stream) for stream in streams if current_rules(stream.configs) is not None]
    return [*streams, *(stream for stream in derived if stream.name not in names)]
