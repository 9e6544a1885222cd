"""`bearlake import kafka`: a process that joins the deployment as a server without clients, and copies topics.

The registration's name follows from source and patterns: a second process for the same import fences the first one.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

from bearlake.app.command_logs import for_commands
from bearlake.app.copying import Progress, first_answer, progress_of, run_shown
from bearlake.app.joining import joined
from bearlake.app.startup import open_stores
from bearlake.errors import NotFound
from bearlake.importing import promotion
from bearlake.importing.access import AccessCopied, copy_access
from bearlake.importing.cluster import SourceCluster
from bearlake.importing.copying import Copy
from bearlake.importing.groups import GroupOffsets
from bearlake.importing.progress import PartitionCopy
from bearlake.importing.promotion import Promoted
from bearlake.importing.selection import Selection
from bearlake.importing.target import Target
from bearlake.importing.verifying import Compared, verify
from bearlake.protocols.pulsar.names import parse
from bearlake.settings.document import Settings
from bearlake.streams.catalog import Catalog, StreamView
from bearlake.streams.promotions import note_in
from bearlake.streams.service import Streams
from bearlake.telemetry import metrics
from bearlake.telemetry.logs import set_up

if TYPE_CHECKING:
    from bearlake.importing.schemas import SchemasCopied


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """What to import. `bootstrap`: `host:port` of brokers of the source, with commas; `patterns`: regular expressions of topics' names."""

    bootstrap: str
    patterns: Sequence[str]
    follow: bool = False
    verify: bool = False
    """Compare the streams with the topics at the end; not with `follow`."""
    access_rules: bool = False
    """Copy access rules at the start."""
    registry: str = ""
    """URL of a schema registry whose schemas are copied at the start; empty: none."""
    admin_port: int | None = None
    """Port of the admin API, which serves health and metrics; None: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The result: progress at the end, what could not be copied, and why."""

    progress: Progress
    left_configs: Mapping[str, Sequence[str]]
    """By topic, the configs that cannot be used here."""
    groups: Sequence[str]
    """Consumer groups whose offsets the streams have."""
    refused_groups: Mapping[str, str]
    """Other groups, with the reason."""
    ended: Mapping[str, str]
    """Topics that could not be copied to the end, with the reason."""
    access: AccessCopied | None
    """What became of the access rules; None: not asked for."""
    schemas: "SchemasCopied | None"
    """What became of the schemas; None: not asked for."""
    compared: Sequence[Compared]
    """The comparison of each partition; empty if it was not asked for."""


async def import_topics(
    settings: Settings, options: ImportOptions, show: Callable[[Progress], None] = lambda _: None
) -> Imported:
    """Copy the topics that match now; with `follow`, until cancelled. `show` is called twice a second.

    Raises as `Copy.run`, `copy_access`, `verify` and `joined`.
    """
    set_up(for_commands(settings.logs))
    cluster = SourceCluster(options.bootstrap, settings.imports.source)
    selection = Selection(cluster, options.patterns)
    topics = await first_answer(
        selection.look(), f"the source {options.bootstrap}"
    )  # errors of the source come before those of the stores
    if not topics:
        raise NotFound(
            f"the source {options.bootstrap} has no topic that matches {' or '.join(options.patterns)}, or does not show it to this user"
        )
    async with joined(settings, _name(options), options.admin_port) as streams:
        access = None
        if options.access_rules:
            access = await copy_access(cluster, streams.access, [topic.name for topic in topics])
        schemas = await _copy_schemas(settings, options.registry, streams) if options.registry else None
        target = Target(streams, cluster.cluster_id)
        groups = GroupOffsets(cluster, streams, is_repeated=options.follow)
        copy = Copy(cluster, target, selection, settings.imports.copy, groups.copy)
        _measure(copy, settings.imports.copy.bytes_per_s)
        await run_shown(copy, lambda: show(progress_of(copy, _row)), follow=options.follow)
        compared: Sequence[Compared] = ()
        if options.verify:
            copied = {item.topic.name: item.topic for item in copy.partitions}
            compared = await verify(cluster, streams, target, list(copied.values()))
        return Imported(
            progress=progress_of(copy, _row),
            left_configs=selection.left,
            groups=groups.copied.names,
            refused_groups=groups.copied.refused,
            ended={name: str(error) for name, error in copy.ended.items()},
            access=access,
            schemas=schemas,
            compared=compared,
        )


async def _copy_schemas(settings: Settings, url: str, streams: Streams) -> "SchemasCopied":
    from bearlake.importing.registry import SourceRegistry
    from bearlake.importing.schemas import copy_schemas  # its libraries are an extra of their own
    from bearlake.streams.schemas.service import Schemas

    source = SourceRegistry(url, settings.imports.registry)
    with closing(Schemas(streams.metadata.schemas, settings.schemas)) as schemas:
        return await copy_schemas(source, schemas)


def _measure(copy: Copy[StreamView], bytes_per_s_max: int) -> None:
    metrics.IMPORT_LAG.set_function(lambda: sum(item.lag for item in copy.partitions))
    metrics.IMPORT_PARTITIONS.set_function(lambda: len(copy.partitions))
    metrics.IMPORT_ENDED.set_function(lambda: len(copy.ended))
    metrics.IMPORT_BYTES_PER_S_MAX.set(bytes_per_s_max)


async def promote(
    settings: Settings, names: Sequence[str], show: Callable[[Promoted], None] = lambda _: None
) -> Sequence[Promoted]:
    """Let everybody append to these streams; their imports end. A name with `://` is that of a Pulsar topic.

    The process does not join the deployment, so promotions at the same time do not fence each other. Raises as `promotion.promote` and
    `open_stores`; `Invalid` for a name that is none.
    """
    chosen = [parse(name).stream if "://" in name else name for name in names]
    async with AsyncExitStack() as stores:
        metadata, store = await open_stores(settings, stores)
        catalog = Catalog(metadata.streams, settings.streams.stream_count_max, note_promotion=note_in(store))
        return await promotion.promote(catalog, chosen, show)


def _row(item: PartitionCopy[StreamView]) -> dict[str, object]:
    return {
        "topic": item.topic.name,
        "partition": item.index,
        "start_offset": item.start,
        "end_offset": item.end,
        "source_offset": item.source_stable,
        "lag": item.lag,
    }


def _name(options: ImportOptions) -> str:
    about = "\n".join([options.bootstrap, *sorted(options.patterns)])
    return f"import-{crc32(about.encode()):08x}"
