"""The composition of one server process, in the order of the start; it stops in the reverse order.

    listeners (ports are known and taken) → stores (waited for, migrated) → registration (epoch) → admin API → the role → ready

While the process waits for the stores, `/livez` answers and `/readyz` says no (`serving/admin/starting.py`).

`app/role.py` has the interface of roles, and the parts that they are built from.

Stopping: `/readyz` says no → marked as draining, so that clients are sent to other servers → services and stream API (`streams/`) finish
the work that they accepted, within a bound → background tasks end → services close → the registration ends → the stores close.
"""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack

from bearlake import __version__, kernel
from bearlake.app.disks import DiskWatch, store_folders
from bearlake.app.exits import Exit
from bearlake.app.role import OpenListener, Parts, Plan, Role
from bearlake.app.startup import METADATA_STORE, Startup, open_stores
from bearlake.app.stop import Stop
from bearlake.errors import BearlakeError, OutOfRoom, Unavailable
from bearlake.metadata import Metadata
from bearlake.objects import ObjectStore
from bearlake.owned_tasks import EndLimit, Tasks
from bearlake.serving.admin.access import AccessRoutes
from bearlake.serving.admin.auth import read_metrics_token, read_token
from bearlake.serving.admin.compaction import CompactionRoutes
from bearlake.serving.admin.lag import LagRoutes
from bearlake.serving.admin.server import AdminServer, Routes, admin_endpoint
from bearlake.serving.admin.starting import StartingServer
from bearlake.serving.admin.streams import StreamRoutes
from bearlake.serving.admin.transactions import TransactionRoutes
from bearlake.serving.admin.users import UserRoutes
from bearlake.serving.authentication.peer import LoginRules, check_openness
from bearlake.serving.authentication.presented import MECHANISMS, require_one_message
from bearlake.serving.authentication.settings import OAUTHBEARER
from bearlake.serving.certificates import Certificates
from bearlake.serving.groups.routes import GroupRoutes
from bearlake.serving.http.login import HttpListenerLogin
from bearlake.serving.listener import BoundSettings, Listener, ListenerSettings, open_listener
from bearlake.serving.membership import RegisteredServer
from bearlake.serving.shares.routes import ShareRoutes
from bearlake.serving.trust import PeerTrust
from bearlake.settings.document import Settings
from bearlake.settings.show import as_rows
from bearlake.telemetry import metrics
from bearlake.telemetry.watchdog import StallLog, Watchdog

log = logging.getLogger(__name__)

LOOP_PROBE_MS = 500
ROLE_DRAIN_SHARE = 0.8  # of the remaining time; the rest is for the stream service to flush
ONE_MESSAGE = ("rest", "registry", "catalog", "pulsar", "pulsar_http")
"""Listeners whose clients log in by one message. Kafka's also have SCRAM, and the admin API has a token of its own."""
GC_THRESHOLDS = (20_000, 20, 50)  # requests create thousands of containers; the default 700 would collect all the time


async def run_process(
    plan: Plan, stop: Stop, roles: Sequence[Role], serve: Callable[[Mapping[str, str]], Awaitable[None]]
) -> None:
    """Start everything, await `serve` with the endpoints (it returns when the process must stop), and stop everything.

    Raises:
        Invalid: the settings have an error that only shows now (URLs, token, TLS files).
        Unavailable: a port is taken, or a store does not answer.
        Stopped: the process was asked to stop while it waited for a store.
        TaskDied: a background task ended on its own.
    """
    settings = plan.settings
    async with AsyncExitStack() as closing:
        limit = EndLimit(lambda: ["stores or services"])  # such as SQLite on a disk that hangs
        closing.callback(limit.over)
        token = read_token(settings.admin, plan.environ)  # an invalid token must fail before any port is bound
        metrics_token = read_metrics_token(settings.admin, token)
        trust = PeerTrust(settings.admin.tls_ca_file, settings.admin.tls_server_name)
        certificates = Certificates()

        def open_one(listener_settings: BoundSettings, what: str) -> Listener:
            return _open_one(listener_settings, what, settings, certificates, closing)

        endpoints, admin_listener = _bound(roles, settings, open_one)

        def on_fenced() -> None:
            stop.request("a newer process registered this server's name", Exit.FENCED, is_graceful=False)

        def on_unknown() -> None:
            stop.request("the outcome of a commit is unknown", Exit.FAILED, is_graceful=False)

        async def join(metadata: Metadata) -> RegisteredServer:
            registered = await RegisteredServer.join(metadata.servers, settings.server, endpoints, on_fenced)
            closing.push_async_callback(_leave, registered)
            return registered

        metadata, store, registered = await _stores(settings, admin_listener, stop, closing, join)
        parts = Parts(
            plan=plan,
            metadata=metadata,
            store=store,
            registered=registered,
            closing=closing,
            on_fenced=on_fenced,
            on_unknown=on_unknown,
            certificates=certificates,
            token=token,
            metrics_token=metrics_token,
            trust=trust,
        )
        for role in roles:
            role.build(parts)
        disks = DiskWatch(store_folders(settings))
        admin = _admin_server(parts, admin_listener, disks)
        closing.push_async_callback(admin.close)
        closing.callback(limit.begin)  # called first
        await _run(parts, admin, disks, roles, stop, serve)


async def _run(
    parts: Parts,
    admin: AdminServer,
    disks: DiskWatch,
    roles: Sequence[Role],
    stop: Stop,
    serve: Callable[[Mapping[str, str]], Awaitable[None]],
) -> None:
    """Start what is built, serve, and drain what was started. Raises `TaskDied`, `Unavailable`."""
    async with Tasks() as tasks:
        tasks.own("heartbeats", parts.registered.run())
        tasks.own("loop probe", _probe_loop())
        tasks.own("certificates", parts.certificates.run())
        tasks.own("disks", disks.run())
        await admin.start()
        if parts.stream_service is not None:
            await parts.stream_service.start()
            tasks.own("streams", parts.stream_service.run())
        addresses: dict[str, str] = {}
        for role in roles:
            addresses |= await role.start(tasks)
        admin.is_ready = True
        _finish_startup()
        tasks.own("loop watchdog", _watch_loop())  # until here, nobody waits for the loop
        await serve({**admin.endpoints, **addresses})
        if stop.is_graceful:
            await _drain(parts, admin, roles)


def _bound(roles: Sequence[Role], settings: Settings, open_one: OpenListener) -> tuple[dict[str, str], Listener]:
    """Bind the listeners of all roles, and of the admin API. Returns the endpoints, and the listener of the admin API.

    Raises `Unavailable` that names the taken ports of all of them, so that a user need not find them one start after the other.
    """
    endpoints: dict[str, str] = {}
    refused: list[Unavailable] = []
    for role in roles:
        try:
            endpoints |= role.bind(settings, open_one)
        except Unavailable as error:
            refused.append(error)
    try:
        admin_listener = open_one(settings.admin, "admin")
    except Unavailable as error:
        refused.append(error)
    if refused:
        raise Unavailable("\n".join(map(str, refused))) from refused[0]
    endpoints.update([admin_endpoint(admin_listener)])
    return endpoints, admin_listener


def _open_one(
    listener_settings: BoundSettings,
    what: str,
    settings: Settings,
    certificates: Certificates,
    closing: AsyncExitStack,
) -> Listener:
    if isinstance(listener_settings, ListenerSettings):
        check_openness(what, listener_settings, settings.authentication)
        if what in ONE_MESSAGE:
            require_one_message(what, listener_settings, settings.authentication)
    listener = open_listener(listener_settings, what)
    closing.callback(listener.socket.close)
    if listener.tls is not None:
        certificates.watch(listener_settings, what, listener.tls)
    return listener


def _admin_server(parts: Parts, listener: Listener, disks: DiskWatch) -> AdminServer:
    """Build the admin API, with the routes of the services that this process has. Raises `Invalid`."""
    service = parts.stream_service
    routes: list[Routes] = [CompactionRoutes(parts.metadata), LagRoutes(parts.metadata)]
    if service is not None:
        routes += [
            StreamRoutes(service),
            AccessRoutes(service.access),
            UserRoutes(parts.metadata.users),
            GroupRoutes(service.coordinating),
            ShareRoutes(service.dispatching),
            TransactionRoutes(parts.metadata, service.transactions),
        ]

    def write_problem() -> str:
        return disks.problem or parts.registered.failure or ("" if service is None else service.write_problem)

    return AdminServer(
        listener,
        parts.metadata.log,
        parts.registered,
        parts.settings.admin,
        routes=routes,
        token=parts.token,
        metrics_token=parts.metrics_token,
        config=lambda: as_rows(parts.plan.loaded),
        login=_admin_login(parts),
        is_super_user=parts.settings.access.is_super_user,
        write_problem=write_problem,
    )


def _admin_login(parts: Parts) -> HttpListenerLogin | None:
    """Return how super users log in to the admin API, besides its token; None: they cannot.

    Tokens of the issuer are accepted even if no other listener takes them, such as those of the operator's service account. Certificates
    are accepted if `admin.tls_client_ca_file` is set.
    """
    admin = parts.settings.admin
    settings = parts.settings.authentication
    mechanisms = [name for name in settings.mechanisms if name in MECHANISMS]
    if settings.token.issuer and settings.token.audience and OAUTHBEARER not in mechanisms:
        mechanisms.append(OAUTHBEARER)
    may_use_certificate = bool(admin.tls_client_ca_file)
    if not may_use_certificate and not (mechanisms and parts.settings.access.super_users):
        return None
    return parts.http_login_by(
        LoginRules(mechanisms, tokens_without_tls=admin.tokens_without_tls, may_use_certificate=may_use_certificate)
    )


async def _stores(
    settings: Settings,
    admin_listener: Listener,
    stop: Stop,
    closing: AsyncExitStack,
    join: Callable[[Metadata], Awaitable[RegisteredServer]],
) -> tuple[Metadata, ObjectStore, RegisteredServer]:
    """Open both stores, and register with `join`; the admin API reports health meanwhile. Raises as `open_stores`."""
    startup = Startup(stop, settings.server.startup_wait_ms)
    starting = StartingServer(admin_listener, lambda: startup.waiting_for)
    await starting.start()
    try:
        metadata, store = await open_stores(settings, closing, startup)
        registered = await startup.until_there(METADATA_STORE, settings.metadata.url, lambda: join(metadata), OutOfRoom)
        return metadata, store, registered
    finally:
        await starting.close()


def _finish_startup() -> None:
    """Run one-time work after all modules are loaded."""
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


async def _watch_loop() -> None:
    stalls = StallLog(lambda request: metrics.LOOP_STALLS.labels(request).inc())
    async with Watchdog(metrics.LOOP_HELD_SECONDS.observe, stalls.add):
        await asyncio.Event().wait()


async def _drain(parts: Parts, admin: AdminServer, roles: Sequence[Role]) -> None:
    """Finish requests in progress, in at most `server.drain_ms`: first the roles in parallel, then their work in the stream service."""
    loop, settings = asyncio.get_running_loop(), parts.settings
    end = loop.time() + settings.server.drain_ms / 1000
    try:
        async with asyncio.timeout_at(end):
            await _announce_drain(settings, parts.registered)
            await admin.drain(0)
            left_ms = max(0, int((end - loop.time()) * 1000 * ROLE_DRAIN_SHARE))
            await asyncio.gather(*(role.drain(left_ms) for role in roles))
            if parts.stream_service is not None:
                await parts.stream_service.drain()
    except TimeoutError:
        log.warning(
            "draining exceeded its deadline; closing all connections", extra={"drain_ms": settings.server.drain_ms}
        )
    except BearlakeError as error:
        log.warning("draining failed; closing all connections", extra={"error": error})


async def _announce_drain(settings: Settings, registered: RegisteredServer) -> None:
    try:
        await registered.drain()
    except BearlakeError as error:
        log.warning("cannot announce the drain to the other servers", extra={"error": error})
        return
    if registered.has_peers():
        await asyncio.sleep(settings.server.drain_notice_ms / 1000)


async def _leave(registered: RegisteredServer) -> None:
    try:
        async with asyncio.timeout(5):
            await registered.leave()
    except (BearlakeError, TimeoutError) as error:
        log.warning("cannot deregister this server; its peers detect the missing heartbeats", extra={"error": error})
