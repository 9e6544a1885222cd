"""`bearlake import kafka`: a process that joins the deployment as a server without clients, and copies topics.

The registration's name follows from source and patterns: a second process for the same import fences the first one.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from zlib import crc32

from bearlake.app.startup import open_stores
from bearlake.errors import Fenced, NotFound
from bearlake.importing.cluster import SourceCluster
from bearlake.importing.copying import Copy, CopySettings
from bearlake.importing.groups import GroupOffsets
from bearlake.importing.source import SourceSettings
from bearlake.importing.target import Target, usable
from bearlake.serving.admin.auth import read_token
from bearlake.serving.groups.peers import GroupPeers
from bearlake.serving.membership import RegisteredServer
from bearlake.serving.trust import PeerTrust
from bearlake.settings.document import Settings
from bearlake.streams.service import Streams

SHOW_S = 0.5
"""Time (s) between two calls of `show`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """What to import. `bootstrap`: `host:port` of a broker of the source; `patterns`: regular expressions of whole topic names."""

    bootstrap: str
    patterns: Sequence[str]
    follow: bool = False
    bytes_per_s: int = 0
    """Most bytes per second; 0: no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an import is. `lag`: offsets that the source has and the target does not."""

    copied_bytes: int
    lag: int
    partitions: Sequence[Mapping[str, object]]


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


async def import_topics(
    settings: Settings, options: ImportOptions, show: Callable[[Progress], None] = lambda _: None
) -> Imported:
    """Copy the topics that match now; with `follow`, until cancelled. `show` is called twice a second.

    Raises `NotFound` if no topic matches, else as `Copy.run`.
    """
    cluster = SourceCluster(options.bootstrap, SourceSettings())
    names = [topic.name for topic in await cluster.topics(options.patterns)]
    if not names:
        raise NotFound(f"the source {options.bootstrap} has no topic that matches {' or '.join(options.patterns)}")
    kept, left = {}, {}
    for name, configs in (await cluster.configs(names)).items():
        kept[name], others = usable(configs)
        if others:
            left[name] = others
    async with joined(settings, _name(options)) as streams:
        target = Target(streams, cluster.cluster_id)
        groups = GroupOffsets(cluster, streams)
        copy = Copy(cluster, target, names, kept, CopySettings(bytes_per_s=options.bytes_per_s), groups.copy)
        running = asyncio.ensure_future(copy.run(follow=options.follow))
        try:
            while not (await asyncio.wait({running}, timeout=SHOW_S))[0]:
                show(progress_of(copy))
            await running
        finally:
            running.cancel()
            await asyncio.wait({running})
        return Imported(
            progress=progress_of(copy),
            left_configs=left,
            groups=groups.copied.names,
            refused_groups=groups.copied.refused,
        )


async def promote(settings: Settings, names: Sequence[str]) -> None:
    """Let everybody append to these streams; their imports end. Raises `NotFound`, `Unavailable`."""
    async with joined(settings, "import-promote") as streams:
        for name in names:
            await Target(streams, "").promote(name)


def progress_of(copy: Copy) -> Progress:
    """Return how far a copy is."""
    rows = [
        {
            "topic": item.topic.name,
            "partition": item.index,
            "start_offset": item.start,
            "end_offset": item.end,
            "source_offset": item.source_stable,
            "lag": item.lag,
        }
        for item in copy.partitions
    ]
    return Progress(copied_bytes=copy.copied.bytes, lag=sum(item.lag for item in copy.partitions), partitions=rows)


@asynccontextmanager
async def joined(settings: Settings, name: str) -> AsyncIterator[Streams]:
    """A stream service of this process for the block, on the stores of the settings; registered under `name`, without endpoints.

    The block is cancelled, and `Fenced` raised, if a newer process registers the name. Raises as `open_stores`.
    """
    async with AsyncExitStack() as closing:
        metadata, store = await open_stores(settings, closing)
        fenced = asyncio.Event()
        own = replace(settings.server, name=name)
        registered = await RegisteredServer.join(metadata.servers, own, {}, fenced.set)
        closing.push_async_callback(registered.leave)
        trust = PeerTrust(settings.admin.tls_ca_file, settings.admin.tls_server_name)
        peers = GroupPeers(registered, settings.streams.groups, read_token(settings.admin, os.environ), trust)
        closing.push_async_callback(peers.close)
        streams = Streams(
            metadata,
            store,
            registered.server,
            settings.streams,
            peers=peers,
            on_fenced=fenced.set,
            tenure=registered.tenure,
        )
        closing.push_async_callback(streams.close)
        await streams.start()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(work) for work in (registered.run(), streams.run(), _until(fenced, name))]
                yield streams
                await streams.drain()
                for task in tasks:
                    task.cancel()
        except ExceptionGroup as errors:  # the block's own error, or that of a task
            fenced_errors = errors.subgroup(Fenced)
            raise _first(fenced_errors or errors) from errors


def _first(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


async def _until(fenced: asyncio.Event, name: str) -> None:
    await fenced.wait()
    raise Fenced(f"a newer process took over {name}")


def _name(options: ImportOptions) -> str:
    about = "\n".join([options.bootstrap, *sorted(options.patterns)])
    return f"import-{crc32(about.encode()):08x}"
