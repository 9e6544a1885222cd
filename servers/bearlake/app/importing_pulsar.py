"""`bearlake import pulsar`: a process that joins the deployment as a server without clients, and copies topics of a Pulsar cluster.

The registration's name follows from source and patterns: a second process for the same import fences the first one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

from bearlake.app.command_logs import for_commands
from bearlake.app.copying import Progress, first_answer, progress_of, run_shown
from bearlake.app.joining import joined
from bearlake.errors import NotFound
from bearlake.importing.progress import PartitionCopy
from bearlake.importing.pulsar.cluster import PulsarCluster
from bearlake.importing.pulsar.conversion import Limits
from bearlake.importing.pulsar.copying import PulsarCopy, PulsarPartition
from bearlake.importing.pulsar.schemas import SourceSchemas
from bearlake.importing.pulsar.selection import PulsarSelection
from bearlake.importing.pulsar.subscriptions import SubscriptionPositions
from bearlake.importing.pulsar.target import PulsarTarget
from bearlake.importing.pulsar.verifying import verify
from bearlake.importing.verifying import Compared
from bearlake.protocols.pulsar.framing import entry_bytes_max
from bearlake.settings.document import Settings
from bearlake.streams.catalog import StreamView
from bearlake.streams.service import Streams
from bearlake.telemetry import metrics
from bearlake.telemetry.logs import set_up

if TYPE_CHECKING:
    from bearlake.streams.schemas.service import Schemas


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarImportOptions:
    """What to import. `url`: `pulsar://host:port`; `admin_url`: the source's HTTP API; `patterns`: as `PulsarCluster.topics` takes them."""

    url: str
    admin_url: str
    patterns: Sequence[str]
    follow: bool = False
    verify: bool = False
    """Compare the streams with the topics at the end; not with `follow`."""
    admin_port: int | None = None
    """Port of the admin API, which serves health and metrics; None: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarImported:
    """The result: progress at the end, what could not be copied, and why."""

    progress: Progress
    subscriptions: Sequence[str]
    """Subscriptions whose positions the streams have, as `STREAM/SUBSCRIPTION`."""
    refused_subscriptions: Mapping[str, str]
    """Other subscriptions, with the reason."""
    gone: Mapping[str, int]
    """By topic, entries that the source let go of before they were copied."""
    ended: Mapping[str, str]
    """Topics that could not be copied to the end, with the reason."""
    schemas: Mapping[str, int]
    """By topic, versions of its schema."""
    refused_schemas: Mapping[str, str]
    """Versions that could not be registered, with the reason."""
    loosened: Sequence[str]
    """Subjects of the registry whose level of compatibility is NONE now."""
    compared: Sequence[Compared]
    """The comparison of each partition; empty if it was not asked for."""


async def import_topics(
    settings: Settings, options: PulsarImportOptions, show: Callable[[Progress], None] = lambda _: None
) -> PulsarImported:
    """Copy the topics that match now; with `follow`, until cancelled. `show` is called twice a second.

    Raises as `CopyRun.run`, `verify` and `joined`.
    """
    set_up(for_commands(settings.logs))
    cluster = PulsarCluster(options.url, options.admin_url, settings.imports.pulsar)
    selection = PulsarSelection(cluster, options.patterns)
    if not await first_answer(
        selection.look(), f"the source {options.url}"
    ):  # errors of the source come before those of the stores
        raise NotFound(f"the source {options.url} has no topic that matches {' or '.join(options.patterns)}")
    limits = Limits(
        entry_bytes_max(settings.pulsar.message_bytes_max), settings.imports.pulsar.entry_uncompressed_bytes_max
    )
    async with joined(settings, _name(options), options.admin_port) as streams:
        with _registry(settings, streams) as registry:
            schemas = SourceSchemas(cluster, registry)
            target = PulsarTarget(streams, cluster.name)
            positions = SubscriptionPositions(streams, settings.imports.pulsar.subscription)
            copy = PulsarCopy(
                cluster, streams, target, selection, schemas, settings.imports.copy, limits, positions.copy
            )
            _measure(copy, settings.imports.copy.bytes_per_s)
            await run_shown(copy, lambda: show(progress_of(copy, _row)), follow=options.follow)
            compared: Sequence[Compared] = ()
            if options.verify:
                copies = [item for item in copy.partitions if isinstance(item, PulsarPartition)]
                compared = await verify(cluster, streams, schemas, copies, limits)
            return PulsarImported(
                progress=progress_of(copy, _row),
                subscriptions=sorted(positions.copied.names),
                refused_subscriptions=positions.copied.refused,
                gone=copy.gone,
                ended={name: str(error) for name, error in copy.ended.items()},
                schemas={name: count for name, count in schemas.copied.items() if count},
                refused_schemas=schemas.refused,
                loosened=sorted(schemas.loosened),
                compared=compared,
            )


@contextmanager
def _registry(settings: Settings, streams: Streams) -> Iterator[Callable[[], "Schemas"]]:
    """A registry that is opened when a topic has a schema: its libraries are an extra of their own."""
    opened: list[Schemas] = []

    def open_registry() -> "Schemas":
        from bearlake.streams.schemas.service import Schemas

        opened.append(Schemas(streams.metadata.schemas, settings.schemas))
        return opened[-1]

    try:
        yield open_registry
    finally:
        for registry in opened:
            registry.close()


def _measure(copy: PulsarCopy, bytes_per_s_max: int) -> None:
    metrics.IMPORT_LAG.set_function(lambda: sum(item.lag for item in copy.partitions))
    metrics.IMPORT_PARTITIONS.set_function(lambda: len(copy.partitions))
    metrics.IMPORT_ENDED.set_function(lambda: len(copy.ended))
    metrics.IMPORT_BYTES_PER_S_MAX.set(bytes_per_s_max)


def _row(item: PartitionCopy[StreamView]) -> dict[str, object]:
    assert isinstance(item, PulsarPartition)
    return {
        "topic": item.topic.name,
        "partition": item.index,
        "start_offset": item.start,
        "end_offset": item.end,
        "copied_through": str(item.done),
        "source_last": str(item.ledgers.last),
        "lag": item.lag,
    }


def _name(options: PulsarImportOptions) -> str:
    about = "\n".join([options.url, *sorted(options.patterns)])
    return f"import-pulsar-{crc32(about.encode()):08x}"
