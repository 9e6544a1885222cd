"""Stream configs: every Kafka topic config with name, type, default and meaning, and the few that Bearlake acts on.

Kafka tools create, describe and alter topics with these names. So Bearlake knows all topic configs of Kafka 4.x, lists them with their
defaults and accepts them. A config without meaning for a log without broker disks is stored and returned, and its documentation says so.
`StreamRules` is the parsed form that the append path uses.

Source: Apache Kafka documentation, "Topic Configs" (4.x).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from bearlake.errors import Invalid
from bearlake.streams.config import LONG_MAX, Config, ConfigType
from bearlake.streams.schema_rules import SchemaRules
from bearlake.streams.table_configs import TABLE_CONFIGS

_NO_DISK = "Accepted for compatibility; without effect, since Bearlake has no broker disks."
_B, _S, _I, _L, _D, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)

ALL: tuple[Config, ...] = (
    Config(
        "cleanup.policy",
        _LIST,
        "delete",
        "What happens to old records. delete: retention deletes them. compact: key compaction keeps the newest record of each key.",
        choices=("delete", "compact", ""),
    ),
    Config(
        "compression.type",
        _S,
        "producer",
        "Batches are stored as the producer compressed them; other values are accepted for compatibility.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    Config(
        "compression.gzip.level",
        _I,
        "-1",
        "Accepted for compatibility: batches are stored as the producer compressed them.",
    ),
    Config(
        "compression.lz4.level",
        _I,
        "9",
        "Accepted for compatibility: batches are stored as the producer compressed them.",
    ),
    Config(
        "compression.zstd.level",
        _I,
        "3",
        "Accepted for compatibility: batches are stored as the producer compressed them.",
    ),
    Config(
        "delete.retention.ms",
        _L,
        "86400000",
        "Key compaction: how long (ms) a tombstone stays readable after the first cleaning that reached it.",
        0,
    ),
    Config("file.delete.delay.ms", _L, "60000", _NO_DISK, 0),
    Config("flush.messages", _L, str(LONG_MAX), _NO_DISK + " Every acknowledged record is durable.", 1),
    Config("flush.ms", _L, str(LONG_MAX), _NO_DISK + " Every acknowledged record is durable.", 0),
    Config("follower.replication.throttled.replicas", _LIST, "", _NO_DISK),
    Config("http.closed", _B, "false", "Whether the stream was closed for appends over HTTP (/v1/stream)."),
    Config("http.closed.by", _S, "", "The append of an idempotent producer that closed the stream over HTTP, as JSON."),
    Config("http.content.type", _S, "", "Content type of values for HTTP readers; empty: application/octet-stream."),
    Config(
        "http.deleted",
        _B,
        "false",
        "Whether the stream was deleted over HTTP and is kept only until its last fork is deleted.",
    ),
    Config("http.ends", _S, "", "End offsets, by partition, of a stream that was closed over HTTP."),
    Config("http.expires.at", _S, "", "When the stream is deleted (RFC 3339); empty: never. See http.ttl.seconds."),
    Config("http.fork", _S, "", "Origin of an HTTP fork: number/partition@offset+part=first offset of the fork."),
    Config("http.forked", _B, "false", "Whether the stream was ever forked over HTTP."),
    Config(
        "http.incomplete",
        _B,
        "false",
        "Whether the stream is being created over HTTP and its first content is not written yet.",
    ),
    Config(
        "http.sequences",
        _S,
        "",
        "State of HTTP's Stream-Seq by partition, as JSON: offset up to which the log was read, and largest value.",
    ),
    Config(
        "http.ttl.seconds",
        _L,
        "-1",
        "Seconds without an HTTP read or write after which the stream is deleted; -1: never.",
        -1,
    ),
    Config(
        "http.used.at",
        _L,
        "0",
        "Approximate time (ms) of the last HTTP use of the stream; used for http.ttl.seconds.",
        0,
    ),
    Config(
        "import.source",
        _S,
        "",
        "Cluster and topic that an import copies to this stream, which takes no other batches meanwhile; empty: none.",
    ),
    Config("index.interval.bytes", _I, "4096", _NO_DISK, 0),
    Config("leader.replication.throttled.replicas", _LIST, "", _NO_DISK),
    Config("local.retention.bytes", _L, "-2", _NO_DISK, -2),
    Config("local.retention.ms", _L, "-2", _NO_DISK, -2),
    Config(
        "max.compaction.lag.ms",
        _L,
        str(LONG_MAX),
        "Key compaction: age (ms) of a record at which the partition is cleaned whatever its dirty ratio.",
        1,
    ),
    Config(
        "max.message.bytes", _I, "1048588", "Largest record batch in bytes; a larger batch gets MESSAGE_TOO_LARGE.", 0
    ),
    Config(
        "message.timestamp.after.max.ms",
        _L,
        "3600000",
        "How far (ms) a record's CreateTime may lie ahead of the server's clock.",
        0,
    ),
    Config(
        "message.timestamp.before.max.ms",
        _L,
        str(LONG_MAX),
        "How far (ms) a record's CreateTime may lie behind the server's clock.",
        0,
    ),
    Config(
        "message.timestamp.type",
        _S,
        "CreateTime",
        "Whose clock stamps records: the producer's or the server's.",
        choices=("CreateTime", "LogAppendTime"),
    ),
    Config(
        "min.cleanable.dirty.ratio",
        _D,
        "0.5",
        "Key compaction: the stream is cleaned when its data files that were never cleaned have more than this share of the bytes.",
        0,
        1,
    ),
    Config(
        "min.compaction.lag.ms", _L, "0", "Key compaction: age (ms) up to which a record is kept whatever its key.", 0
    ),
    Config("min.insync.replicas", _I, "1", "Accepted for compatibility: the object store replicates.", 1),
    Config("preallocate", _B, "false", _NO_DISK),
    Config(
        "pulsar.deduplication",
        _B,
        "true",
        "Whether a message that a Pulsar producer resends is stored once (by its sequence id).",
    ),
    Config(
        "pulsar.partitioned",
        _B,
        "false",
        "Whether Pulsar clients see a partitioned topic even if the stream has one partition.",
    ),
    Config(
        "record.validation",
        _S,
        "full",
        "full: records are decompressed and checked one by one. header: only the batch's header and checksum are checked.",
        choices=("header", "full"),
    ),
    Config("remote.log.copy.disable", _B, "false", _NO_DISK),
    Config("remote.log.delete.on.disable", _B, "false", _NO_DISK),
    Config("remote.storage.enable", _B, "false", _NO_DISK),
    Config(
        "retention.bytes",
        _L,
        "-1",
        "Bytes of a partition beyond which its oldest records are deleted; -1: no limit.",
        -1,
    ),
    Config("retention.ms", _L, "604800000", "Age (ms) at which records may be deleted; -1: no limit.", -1),
    Config(
        "schema.key.subjects",
        _LIST,
        "",
        "Subjects of the registry whose schemas keys may have; empty: the stream's name with '-key'.",
    ),
    Config("schema.key.validation", _S, "none", "As schema.validation, for keys.", choices=("none", "id", "value")),
    Config(
        "schema.validation",
        _S,
        "none",
        "What servers check of a value before they store it. id: it begins with the id of a schema of table.value.subjects. value: it is"
        " also a value of that schema, or fits table.columns.",
        choices=("none", "id", "value"),
    ),
    Config("segment.bytes", _I, "1073741824", _NO_DISK, 14),
    Config("segment.index.bytes", _I, "10485760", _NO_DISK, 4),
    Config("segment.jitter.ms", _L, "0", _NO_DISK, 0),
    Config("segment.ms", _L, "604800000", _NO_DISK, 1),
    *TABLE_CONFIGS,
    Config("unclean.leader.election.enable", _B, "false", _NO_DISK),
)

BY_NAME: dict[str, Config] = {config.name: config for config in ALL}

IMPORT_SOURCE = "import.source"
"""The config that an import sets when it creates a stream, and that its promotion unsets."""

ENDING = frozenset({"http.deleted", "http.expires.at", "http.incomplete", "http.ttl.seconds", "http.used.at"})
"""Configs by which servers delete a stream. A caller who changes one also needs the right to delete the stream."""


GIVEN_COUNT_MAX = 1_000
"""Maximum number of configs that a request gives for one stream: many times as many as there are."""


def check_count(count: int) -> None:
    """Raise `Invalid` for so many configs that some are unknown or repeated: to look at all of them would take long."""
    if count > GIVEN_COUNT_MAX:
        raise Invalid(f"{count} configs for one topic: expected at most {GIVEN_COUNT_MAX}")


def check(configs: Mapping[str, str]) -> None:
    """Raise `Invalid`, naming the config, unless every name is known and every value is legal."""
    for name, value in configs.items():
        config = BY_NAME.get(name)
        if config is None:
            raise unknown(name)
        config.check(value)


def unknown(name: str) -> Invalid:
    """Return the error for a config name that does not exist, in Kafka's words."""
    return Invalid(f"Unknown topic config name: {name}")


def value(configs: Mapping[str, str], name: str) -> str:
    """Return the stream's value of a config, or the default."""
    return configs.get(name, BY_NAME[name].default)


class TimestampSource(Enum):
    """The clock that sets the timestamps of a stream's records."""

    CREATE = "CreateTime"
    LOG_APPEND = "LogAppendTime"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRules:
    """Rules that the append path checks: largest batch (bytes), timestamp bounds (ms), and checks of single records.

    `validates_records`: the records of batches that clients encoded are checked. `requires_keys`: every record must have a key.
    `schemas`: which schemas keys and values must have; None: any bytes are good.
    `is_imported`: only the import appends (decision 227).
    """

    batch_bytes_max: int
    timestamp_source: TimestampSource
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    validates_records: bool
    requires_keys: bool
    schemas: SchemaRules | None = None
    is_imported: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether `kernel.admit_plain` can decide: the server neither stamps nor refuses all batches, nor requires keys or schemas."""
        is_stamped = self.timestamp_source is not TimestampSource.CREATE
        return not (is_stamped or self.requires_keys or self.is_imported or self.schemas is not None)


def rules(configs: Mapping[str, str], schemas: SchemaRules | None = None) -> StreamRules:
    """Parse the append path's rules from a stream's configs, which must be checked already; `schemas` are its rules for schemas."""
    is_compacted = has_key_compaction(configs)
    return StreamRules(
        batch_bytes_max=int(value(configs, "max.message.bytes")),
        timestamp_source=TimestampSource(value(configs, "message.timestamp.type")),
        timestamp_before_max_ms=int(value(configs, "message.timestamp.before.max.ms")),
        timestamp_after_max_ms=int(value(configs, "message.timestamp.after.max.ms")),
        validates_records=is_compacted or schemas is not None or value(configs, "record.validation") == "full",
        requires_keys=is_compacted,
        schemas=schemas,
        is_imported=bool(value(configs, IMPORT_SOURCE)),
    )


def has_key_compaction(configs: Mapping[str, str]) -> bool:
    """Return whether `cleanup.policy` contains `compact`."""
    return "compact" in value(configs, "cleanup.policy")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRules:
    """Rules for compaction. `namespace` and `name` identify the table; `retention_ms` None: rows are kept forever."""

    is_enabled: bool
    freshness_ms: int
    retention_ms: int | None
    namespace: str
    name: str
    is_dropped_on_delete: bool


def table_rules(stream_name: str, configs: Mapping[str, str]) -> TableRules:
    """Parse the table's rules from a stream's configs, which must be checked already."""
    retention_ms = int(value(configs, "table.retention_ms"))
    return TableRules(
        is_enabled=value(configs, "table.enable").lower() == "true",
        freshness_ms=int(value(configs, "table.freshness_ms")),
        retention_ms=None if retention_ms < 0 else retention_ms,
        namespace=value(configs, "table.namespace"),
        name=value(configs, "table.name") or stream_name.replace(".", "_"),
        is_dropped_on_delete=value(configs, "table.on_delete") == "drop",
    )
