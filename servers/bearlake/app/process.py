"""The composition of one server process, in the order of starting; it stops in the reverse order.

    listeners (ports are known and taken) → stores (migrated) → registration (epoch) → the waist → services → admin API → ready

Stopping: `/readyz` says no → marked as draining, so that clients are told of other servers → services and the waist finish what
they accepted, within a bound → background tasks end → services close → the registration is given up → the stores close.
"""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from urllib.parse import urlsplit

from bearlake import __version__, kernel
from bearlake.app.exits import Exit
from bearlake.app.stop import Stop
from bearlake.errors import BearlakeError, Fenced, Invalid, Unavailable
from bearlake.metadata import Metadata
from bearlake.metadata.open import POSTGRESQL, open_metadata
from bearlake.objects import ObjectStore
from bearlake.objects.open import open_store
from bearlake.protocols.kafka.server import KafkaServer
from bearlake.serving import Service
from bearlake.serving.admin.access import read_token
from bearlake.serving.admin.server import AdminServer
from bearlake.serving.listener import Listener, ListenerSettings, open_listener
from bearlake.serving.membership import Member
from bearlake.serving.tasks import Tasks
from bearlake.settings.document import MetadataSettings, Settings
from bearlake.settings.load import Loaded
from bearlake.settings.show import as_rows
from bearlake.streams.service import Streams
from bearlake.telemetry import metrics
from bearlake.telemetry.object_calls import ObjectCalls

log = logging.getLogger(__name__)

LOOP_PROBE_MS = 500
SERVICE_DRAIN_SHARE = 0.8  # of the time that is left; the rest is for the waist to flush
GC_THRESHOLDS = (20_000, 20, 50)  # requests make containers by the thousand; the default 700 collects all the time


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a process shall run: its settings, and the variables that hold secrets."""

    loaded: Loaded[Settings]
    environ: Mapping[str, str]

    @property
    def settings(self) -> Settings:
        """The settings themselves."""
        return self.loaded.settings


@dataclass(frozen=True, slots=True)
class Bound:
    """Listeners that are bound, before anything else was done."""

    kafka: Sequence[Listener]
    admin: Listener

    def endpoints(self) -> dict[str, str]:
        """Advertised addresses of all of them."""
        return dict([listener.endpoint("kafka") for listener in self.kafka] + [self.admin.endpoint("admin")])

    def close(self) -> None:
        """Close the sockets; those that a service has closed already are fine."""
        for listener in (*self.kafka, self.admin):
            listener.socket.close()


async def run_process(plan: Plan, stop: Stop, serve: Callable[[Mapping[str, str]], Awaitable[None]]) -> None:
    """Start everything, await `serve` with the endpoints, which returns when it is time to stop, and stop everything.

    Raises:
        Invalid: the settings are wrong in a way that only shows now (URLs, token, TLS files).
        Unavailable: a port is taken, or a store does not answer.
        TaskDied: a background task ended on its own.
    """
    async with AsyncExitStack() as closing:
        bound = bind_all(plan, closing)
        metadata, store = await _open_stores(plan.settings, closing)

        def on_fenced() -> None:
            stop.request("a newer process of this name has registered", Exit.FENCED, is_graceful=False)

        member = await Member.join(metadata.servers, plan.settings.server, bound.endpoints(), on_fenced)
        closing.push_async_callback(_leave, member)
        streams = Streams(metadata, store, member.server, plan.settings.streams, on_fenced=on_fenced)
        closing.push_async_callback(streams.close)
        admin = AdminServer(
            bound.admin,
            streams,
            member,
            plan.settings.admin,
            token=read_token(plan.settings.admin, plan.environ),
            config=lambda: as_rows(plan.loaded),
        )
        kafka = KafkaServer(streams, member, plan.settings.kafka, bound.kafka)
        services: list[Service] = [admin, kafka]
        for service in services:
            closing.push_async_callback(service.close)
        async with Tasks() as tasks:
            tasks.own("heartbeats", member.run())
            await streams.start()
            tasks.own("streams", streams.run())
            tasks.own("loop probe", _probe_loop())
            for service in services:
                await service.start()
            admin.is_ready = True
            _settle(plan)
            await serve({name: address for service in services for name, address in service.endpoints.items()})
            if stop.is_graceful:
                await _drain(plan.settings, member, services, streams)


def bind_all(plan: Plan, closing: AsyncExitStack) -> Bound:
    """Bind every listener of the settings. Raises `Invalid`, `Unavailable`."""
    settings = plan.settings
    read_token(settings.admin, plan.environ)  # refused before anything is bound
    opened: list[Listener] = []

    def open_one(wanted: ListenerSettings, what: str) -> Listener:
        listener = open_listener(wanted, what)
        closing.callback(listener.socket.close)
        opened.append(listener)
        return listener

    kafka = [open_one(wanted, "kafka") for wanted in (settings.listeners.kafka, *settings.listeners.kafka_more)]
    admin = settings.admin
    wanted = ListenerSettings(host=admin.host, port=admin.port, advertised_host=admin.advertised_host)
    return Bound(kafka, open_one(wanted, "admin"))


async def _open_stores(settings: Settings, closing: AsyncExitStack) -> tuple[Metadata, ObjectStore]:
    for name, url in (("metadata.url", settings.metadata.url), ("object_store.url", settings.object_store.url)):
        if not url:
            raise Invalid(f"{name} is not set: a server of a cluster needs both stores (bearlake up has its own)")
    store = open_store(settings.object_store.url, settings.object_store, recorder=ObjectCalls())
    closing.push_async_callback(store.close)
    metadata = await open_metadata(settings.metadata.url, _backend_settings(settings.metadata))
    closing.push_async_callback(metadata.close)
    return metadata, store


def _backend_settings(metadata: MetadataSettings) -> object:
    return metadata.postgresql if urlsplit(metadata.url).scheme in POSTGRESQL else metadata.sqlite


def _settle(plan: Plan) -> None:
    """What is best done once, when all is loaded."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    metrics.SERVER_INFO.labels(__version__, "native" if kernel.IS_NATIVE else "python").set(1)


async def _probe_loop() -> None:
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LOOP_PROBE_MS / 1000
        await asyncio.sleep(LOOP_PROBE_MS / 1000)
        metrics.LOOP_DELAY_SECONDS.observe(max(0.0, loop.time() - due))


async def _drain(settings: Settings, member: Member, services: Sequence[Service], streams: Streams) -> None:
    """Finish what is under way, in at most `server.drain_ms`."""
    loop = asyncio.get_running_loop()
    end = loop.time() + settings.server.drain_ms / 1000
    try:
        async with asyncio.timeout_at(end):
            await _announce_drain(settings, member)
            for service in services:
                await service.drain(max(0, int((end - loop.time()) * 1000 * SERVICE_DRAIN_SHARE)))
            await streams.drain()
    except TimeoutError:
        log.warning("draining took too long, closing", extra={"drain_ms": settings.server.drain_ms})
    except BearlakeError as error:
        log.warning("draining failed, closing", extra={"error": error})


async def _announce_drain(settings: Settings, member: Member) -> None:
    try:
        await member.drain()
    except (Fenced, Unavailable) as error:
        log.warning("could not announce the drain", extra={"error": error})
        return
    if len(member.live()) > 1:
        await asyncio.sleep(settings.server.drain_notice_ms / 1000)


async def _leave(member: Member) -> None:
    try:
        async with asyncio.timeout(5):
            await member.leave()
    except (BearlakeError, TimeoutError) as error:
        log.warning("could not leave; others notice by the missing heartbeats", extra={"error": error})
