"""The operator's process: acquires the lease, lists, watches and reconciles. When its state may be stale, it exits and is restarted."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from bearlake.owned_tasks import Tasks
from bearlake_operator.admin import AdminClient
from bearlake_operator.controllers import owner_references, watches
from bearlake_operator.controllers.apply import Applier
from bearlake_operator.controllers.cache import ResourceCache
from bearlake_operator.controllers.events import EventRecorder
from bearlake_operator.controllers.health import Health
from bearlake_operator.controllers.leader_election import LeaderElector
from bearlake_operator.controllers.reconcile_loop import ReconcileLoop
from bearlake_operator.controllers.resync import Resync
from bearlake_operator.controllers.status_writer import StatusWriter
from bearlake_operator.controllers.streams import StreamController
from bearlake_operator.controllers.tiers import TierController
from bearlake_operator.kube import KubeClient, Resource
from bearlake_operator.kube_config import ClientConfig
from bearlake_operator.manifests import labels, server_settings
from bearlake_operator.settings import SERVER_TIERS, Settings
from bearlake_operator.trust import AUTHORITIES, trust_of

log = logging.getLogger(__name__)

DEPLOYMENT_VARIABLE = "BEARLAKE_OPERATOR_DEPLOYMENT"
TOKENS = Path("/etc/bearlake/tokens")
"""Where the chart mounts each data layer's admin token: `<data layer>/<key>`."""


class Operator:
    """One operator process."""

    def __init__(
        self,
        settings: Settings,
        config: ClientConfig,
        *,
        host: str,
        port: int,
        tokens: Path = TOKENS,
        authorities: Path = AUTHORITIES,
    ) -> None:
        self._settings = settings
        self._config = config
        self._tokens = tokens
        self._authorities = authorities
        self._address = host, port
        self._kube = KubeClient(config)
        self._cache = ResourceCache()
        self._owner: Resource | None = None

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT, or until an exception that only a restart can resolve."""
        kube, settings = self._kube, self._settings
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        clients = {
            name: AdminClient(self._urls(name), self._token(name), trust_of(name, data_layer, self._authorities))
            for name, data_layer in settings.data_layers.items()
        }
        loops = self._loops(clients)
        for loop in loops:
            self._cache.on_change(loop.wake)
        health = Health(loops, *self._address)
        elector = LeaderElector(kube, f"{socket.gethostname()}-{os.getpid()}", settings.lease_seconds)
        resync = Resync(kube, self._cache, settings.watch_namespaces, settings.resync_seconds)
        try:
            port = await health.start()
            log.info("serving probes and metrics", extra={"port": port})
            async with asyncio.TaskGroup() as group, Tasks() as tasks:
                group.create_task(_until(stop), name="stop")
                await elector.acquire()
                tasks.own("renew the lease", elector.renew())
                await resync.list_all()
                await self._find_owner()
                health.is_ready = True
                tasks.own("watch", watches.run(self._config, self._cache, settings.watch_namespaces))
                tasks.own("resync", resync.run())
                for loop in loops:
                    tasks.own(loop.name, loop.run())
                await tasks.run()
        except* _Stopped:
            log.info("stopping the operator")
        finally:
            health.is_ready = False
            await elector.release()
            for client in clients.values():
                await client.close()
            await health.close()
            await kube.close()

    def _loops(self, clients: dict[str, AdminClient]) -> Sequence[ReconcileLoop]:
        settings, kube, cache = self._settings, self._kube, self._cache
        events = EventRecorder(kube)
        status_writer = StatusWriter(kube, cache, events)
        applier = Applier(kube, cache, lambda: self._owner)
        tiers = TierController(settings, kube.namespace, cache, applier, status_writer, clients)
        loops = [ReconcileLoop("tiers", tiers.reconcile)]
        for layer in (*settings.data_layers, None):
            client = clients[layer] if layer is not None else None
            streams = StreamController(settings, layer, kube, cache, status_writer, events, client, applier.error_of)
            name = f"streams of {layer}" if layer is not None else "streams of unknown data layers"
            loops.append(ReconcileLoop(name, streams.reconcile))
        return loops

    def _urls(self, layer: str) -> Callable[[], Sequence[str]]:
        """Return the configured admin URL, and those of the data layer's tiers that have a ready pod."""
        admin = self._settings.data_layers[layer].admin

        def urls() -> Sequence[str]:
            found = [admin.url] if admin.url else []
            for tier in SERVER_TIERS:
                name = labels.tier_name(layer, tier)
                deployment = self._cache.get("Deployment", self._kube.namespace, name) or {}
                if deployment.get("status", {}).get("readyReplicas"):
                    found.append(f"{admin.scheme}://{name}.{self._kube.namespace}.svc:{server_settings.ADMIN_PORT}")
            return found

        return urls

    def _token(self, layer: str) -> Callable[[], str]:
        path = self._tokens / layer / self._settings.data_layers[layer].admin.key
        return lambda: path.read_text(encoding="utf-8").strip()

    async def _find_owner(self) -> None:
        """Find the operator's Deployment, if its name is configured, and check that no other operator uses the namespace."""
        if name := os.environ.get(DEPLOYMENT_VARIABLE):
            self._owner = await owner_references.find_owner(self._kube, name)
            await owner_references.check_sole_operator(self._kube, self._cache, self._owner)


class _Stopped(Exception):
    """A signal asked the process to stop."""


async def _until(stop: asyncio.Event) -> None:
    await stop.wait()
    raise _Stopped
