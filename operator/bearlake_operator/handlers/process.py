"""The operator's process: leads, lists, watches, works; ends when it cannot be sure of itself any more, and is started anew."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from bearlake_operator.admin import AdminClient
from bearlake_operator.handlers import owner, watches
from bearlake_operator.handlers.apply import Applier
from bearlake_operator.handlers.health import Health
from bearlake_operator.handlers.lease import Leadership
from bearlake_operator.handlers.loop import Loop
from bearlake_operator.handlers.notes import Notes
from bearlake_operator.handlers.resync import Resync
from bearlake_operator.handlers.streams import StreamWorker
from bearlake_operator.handlers.tiers import TierWorker
from bearlake_operator.handlers.world import World
from bearlake_operator.kube import Access, Kube, Resource
from bearlake_operator.manifests import config, labels
from bearlake_operator.settings import PROTOCOLS, Settings

log = logging.getLogger(__name__)

DEPLOYMENT_VARIABLE = "BEARLAKE_OPERATOR_DEPLOYMENT"
TOKENS = Path("/etc/bearlake/tokens")
"""Where the chart mounts each data layer's admin token: `<data layer>/<key>`."""


class Operator:
    """One operator process."""

    def __init__(self, settings: Settings, access: Access, *, host: str, port: int, tokens: Path = TOKENS) -> None:
        self._settings = settings
        self._access = access
        self._tokens = tokens
        self._address = host, port
        self._kube = Kube(access)
        self._world = World()
        self._owner: Resource | None = None

    async def run(self) -> None:
        """Until SIGTERM or SIGINT, or an exception that only a new process can mend."""
        kube, settings = self._kube, self._settings
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        clients = {name: AdminClient(self._urls(name), self._token(name)) for name in settings.data_layers}
        loops = self._loops(clients)
        for loop in loops:
            self._world.on_change(loop.told)
        health = Health(loops, *self._address)
        leadership = Leadership(kube, f"{socket.gethostname()}-{os.getpid()}", settings.lease_seconds)
        resync = Resync(kube, self._world, settings.watch_namespaces, settings.resync_seconds)
        try:
            port = await health.start()
            log.info("probes and metrics", extra={"port": port})
            async with asyncio.TaskGroup() as group:
                group.create_task(_until(stop), name="stop")
                await leadership.acquire()
                group.create_task(leadership.keep(), name="keep the lease")
                await resync.first()
                await self._find_owner()
                health.is_ready = True
                group.create_task(watches.run(self._access, self._world, settings.watch_namespaces))
                group.create_task(resync.run(), name="list everything")
                for loop in loops:
                    group.create_task(loop.run(), name=loop.name)
        except* _Stopped:
            log.info("stopping")
        finally:
            health.is_ready = False
            await leadership.give_up()
            for client in clients.values():
                await client.close()
            await health.close()
            await kube.close()

    def _loops(self, clients: dict[str, AdminClient]) -> Sequence[Loop]:
        settings, kube, world = self._settings, self._kube, self._world
        notes = Notes(kube, world)
        applier = Applier(kube, world, lambda: self._owner)
        tiers = TierWorker(settings, kube.namespace, world, applier, notes, clients)
        found = [Loop("tiers", tiers.work)]
        for layer in (*settings.data_layers, None):
            client = clients[layer] if layer is not None else None
            worker = StreamWorker(settings, layer, kube, world, notes, client, applier.problem_of)
            found.append(Loop(f"streams of {layer}" if layer is not None else "streams of nobody", worker.work))
        return found

    def _urls(self, layer: str) -> Callable[[], Sequence[str]]:
        """The configured admin API, and those of the data layer's tiers that have a pod that serves."""
        first = self._settings.data_layers[layer].admin.url

        def urls() -> Sequence[str]:
            found = [first] if first else []
            for protocol in PROTOCOLS:
                name = labels.tier_name(layer, protocol)
                deployment = self._world.get("Deployment", self._kube.namespace, name) or {}
                if deployment.get("status", {}).get("readyReplicas"):
                    found.append(f"http://{name}.{self._kube.namespace}.svc:{config.ADMIN_PORT}")
            return found

        return urls

    def _token(self, layer: str) -> Callable[[], str]:
        path = self._tokens / layer / self._settings.data_layers[layer].admin.key
        return lambda: path.read_text(encoding="utf-8").strip()

    async def _find_owner(self) -> None:
        """Learn whom everything belongs to, if this process is told; what is another operator's must not be touched."""
        if name := os.environ.get(DEPLOYMENT_VARIABLE):
            self._owner = await owner.find(self._kube, name)
            await owner.check(self._kube, self._world, self._owner)


class _Stopped(Exception):
    """Somebody asked the process to stop."""


async def _until(stop: asyncio.Event) -> None:
    await stop.wait()
    raise _Stopped
