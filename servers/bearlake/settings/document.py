"""The settings document of a server: the sections that packages declare, and the rules between sections.

The same document serves `bearlake up` (where every setting has a default) and a pod of a cluster (one YAML file and the environment).
`bearlake config show` prints it with units, sources and meanings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from bearlake.compaction.settings import CompactionSettings
from bearlake.compaction.spark.settings import SparkSettings
from bearlake.errors import Invalid
from bearlake.exporting.settings import ExportSettings
from bearlake.importing.settings import ImportSettings
from bearlake.live.settings import LiveSettings
from bearlake.metadata.postgresql.settings import PostgresqlSettings
from bearlake.metadata.sqlite.settings import SqliteSettings
from bearlake.objects.open import ObjectStoreSettings
from bearlake.protocols.grpc.settings import GrpcSettings
from bearlake.protocols.kafka.settings import KafkaSettings
from bearlake.protocols.pulsar.http.settings import PulsarHttpSettings
from bearlake.protocols.pulsar.settings import PulsarSettings
from bearlake.protocols.rest.iceberg.settings import CatalogSettings
from bearlake.protocols.rest.registry.settings import RegistrySettings
from bearlake.protocols.rest.settings import RestSettings
from bearlake.serving.admin.settings import AdminSettings
from bearlake.serving.authentication.settings import AuthenticationSettings, check_mechanisms
from bearlake.serving.console.settings import ConsoleSettings
from bearlake.serving.listener import ListenerSettings
from bearlake.serving.membership import ServerSettings
from bearlake.serving.memory import MemorySettings
from bearlake.settings.load import Loaded, load
from bearlake.streams.access.control import AccessSettings
from bearlake.streams.schemas.settings import SchemasSettings
from bearlake.streams.service import StreamsSettings
from bearlake.table.settings import TableSettings
from bearlake.telemetry.logs import LogSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataSettings:
    """The metadata store: streams, offsets, the commit log, groups, servers."""

    url: str = ""
    """sqlite:///path (one host) or postgresql://user@host/database (a cluster); empty: a file in the data folder (bearlake up only)."""
    sqlite: SqliteSettings = field(default_factory=SqliteSettings)
    postgresql: PostgresqlSettings = field(default_factory=PostgresqlSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStoreSection(ObjectStoreSettings):
    """The object store, which holds the records."""

    url: str = ""
    """file:///folder, s3://bucket/prefix, gs://…, az://…; empty: a folder in the data folder (bearlake up only)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenersSettings:
    """Where protocol servers listen."""

    kafka: ListenerSettings = field(default_factory=lambda: ListenerSettings(port=9092))
    kafka_more: tuple[ListenerSettings, ...] = ()
    """Additional Kafka listeners with unique names, for clients that reach the server by another address."""
    pulsar: ListenerSettings = field(default_factory=lambda: ListenerSettings(port=6650))
    pulsar_more: tuple[ListenerSettings, ...] = ()
    """Additional Pulsar listeners with unique names (clients pass the name as `listenerName`), such as a listener with TLS."""
    pulsar_http: ListenerSettings = field(default_factory=lambda: ListenerSettings(port=8080))
    registry: ListenerSettings = field(default_factory=lambda: ListenerSettings(port=8081))
    rest: ListenerSettings = field(default_factory=lambda: ListenerSettings(port=8082))
    catalog: ListenerSettings = field(default_factory=lambda: ListenerSettings(port=8181))
    grpc: ListenerSettings = field(default_factory=lambda: ListenerSettings(port=50051))

    def __post_init__(self) -> None:
        for protocol, first, more in (
            ("kafka", self.kafka, self.kafka_more),
            ("pulsar", self.pulsar, self.pulsar_more),
        ):
            names = [listener.name for listener in (first, *more)]
            if len(set(names)) < len(names):
                raise Invalid(f"every listener of a protocol needs a unique name ({protocol}_more: [{{name: …}}])")

    def all(self) -> Sequence[ListenerSettings]:
        """Return all listeners."""
        single = (self.pulsar_http, self.registry, self.rest, self.catalog, self.grpc)
        return (self.kafka, *self.kafka_more, self.pulsar, *self.pulsar_more, *single)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a server process."""

    server: ServerSettings = field(default_factory=ServerSettings)
    listeners: ListenersSettings = field(default_factory=ListenersSettings)
    metadata: MetadataSettings = field(default_factory=MetadataSettings)
    object_store: ObjectStoreSection = field(default_factory=ObjectStoreSection)
    tables: TableSettings = field(default_factory=TableSettings)
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    spark: SparkSettings = field(default_factory=SparkSettings)
    streams: StreamsSettings = field(default_factory=StreamsSettings)
    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    pulsar: PulsarSettings = field(default_factory=PulsarSettings)
    pulsar_http: PulsarHttpSettings = field(default_factory=PulsarHttpSettings)
    rest: RestSettings = field(default_factory=RestSettings)
    registry: RegistrySettings = field(default_factory=RegistrySettings)
    catalog: CatalogSettings = field(default_factory=CatalogSettings)
    live: LiveSettings = field(default_factory=LiveSettings)
    schemas: SchemasSettings = field(default_factory=SchemasSettings)
    grpc: GrpcSettings = field(default_factory=GrpcSettings)
    authentication: AuthenticationSettings = field(default_factory=AuthenticationSettings)
    access: AccessSettings = field(default_factory=AccessSettings)
    admin: AdminSettings = field(default_factory=AdminSettings)
    console: ConsoleSettings = field(default_factory=ConsoleSettings)
    logs: LogSettings = field(default_factory=LogSettings)
    memory: MemorySettings = field(default_factory=MemorySettings)
    imports: ImportSettings = field(default_factory=ImportSettings)
    exports: ExportSettings = field(default_factory=ExportSettings)

    def __post_init__(self) -> None:
        for listener in self.listeners.all():
            check_mechanisms(listener.mechanisms, self.authentication)
        writer, groups, kafka = self.streams.writer, self.streams.groups, self.kafka
        ordered = [
            (
                "streams.writer.flush_bytes",
                writer.flush_bytes,
                "streams.writer.object_bytes_max",
                writer.object_bytes_max,
            ),
            ("streams.writer.object_bytes_max", writer.object_bytes_max, "streams.writer.bytes_max", writer.bytes_max),
            ("kafka.request_bytes_max", kafka.request_bytes_max, "kafka.receive_bytes_max", kafka.receive_bytes_max),
            (
                "pulsar.message_bytes_max",
                self.pulsar.message_bytes_max,
                "pulsar.uncompressed_bytes_max",
                self.pulsar.uncompressed_bytes_max,
            ),
            (
                "streams.groups.session_timeout_min_ms",
                groups.session_timeout_min_ms,
                "streams.groups.session_timeout_max_ms",
                groups.session_timeout_max_ms,
            ),
            (
                "streams.groups.group_bytes_max",
                groups.group_bytes_max,
                "streams.groups.bytes_max",
                groups.bytes_max,
            ),
            (
                "server.timeout_ms",
                self.server.timeout_ms,
                "streams.groups.coordinator_wait_ms",
                groups.coordinator_wait_ms,
            ),
        ]
        ordered += [
            (f"streams.groups.consumer.{smaller}", low, f"streams.groups.consumer.{larger}", high)
            for smaller, low, larger, high in groups.consumer.ordered()
        ]
        ordered += [
            (f"streams.groups.share.{smaller}", low, f"streams.groups.share.{larger}", high)
            for smaller, low, larger, high in groups.share.ordered()
        ]
        ordered += [
            (f"streams.groups.streams.{smaller}", low, f"streams.groups.streams.{larger}", high)
            for smaller, low, larger, high in groups.streams.ordered()
        ]
        session_ms = self.authentication.session_ms_max
        if self.listeners.grpc.tls_client_ca_file and session_ms:  # a connection verifies its certificate only once
            age_ms = self.grpc.connection_age_ms
            ordered.append(("grpc.connection_age_ms", age_ms, "authentication.session_ms_max", session_ms))
        for smaller, low, larger, high in ordered:
            if low > high:
                raise Invalid(f"{smaller} ({low}) must not be larger than {larger} ({high})")


Given = Mapping[str, tuple[object, str]]
"""Settings that the program gives, by dotted path: (value, who says so)."""

_CLOUD_DEFAULTS: Given = {
    "streams.writer.linger_ms": (250.0, "default of object stores"),
    "streams.writer.flush_when_idle": (False, "default of object stores"),
}
"""A request to an object store costs money and 20 to 100 ms: fewer, larger objects, 4 per second and server. For latency instead,
set `linger_ms: 5` and `flush_when_idle: true`; a loaded server then puts up to `puts_in_flight_max` objects per round trip."""


def load_document(
    file: Path | None, environ: Mapping[str, str], options: Given | None = None, defaults: Given | None = None
) -> Loaded[Settings]:
    """Read a server's settings; see `load`. Some defaults depend on the kind of object store. Raises `Invalid`."""
    loaded = load(Settings, file, environ, options, defaults)
    if urlsplit(loaded.settings.object_store.url).scheme in ("", "file", "memory"):
        return loaded
    return load(Settings, file, environ, options, {**_CLOUD_DEFAULTS, **(defaults or {})})
