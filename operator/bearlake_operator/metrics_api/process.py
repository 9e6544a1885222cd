"""The process of the metrics API: looks at pods, follows its certificates, answers."""

import asyncio
import logging
import signal
from dataclasses import dataclass
from pathlib import Path

from bearlake_operator.errors import Invalid
from bearlake_operator.handlers.health import Health
from bearlake_operator.handlers.loop import Loop
from bearlake_operator.kube import Access, Kube
from bearlake_operator.metrics_api import front_proxy
from bearlake_operator.metrics_api.scraper import Scraper
from bearlake_operator.metrics_api.server import Server
from bearlake_operator.settings import Settings

log = logging.getLogger(__name__)

FOLLOW_S = 30.0
"""How often certificates are looked at. (A kubelet brings a changed Secret within about a minute.)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says. `certificates` has tls.crt and tls.key, `tokens` each `<data layer>/<key>`; `admin_port`
    is that of pods. Own ports of 0 are free ones."""

    host: str
    port: int
    probe_port: int
    certificates: Path
    tokens: Path
    admin_port: int
    period_s: float
    window_s: float


async def run(settings: Settings, access: Access, options: Options) -> None:
    """Until SIGTERM or SIGINT. Raises `ValueError` for options that contradict each other, `OSError` for a port that is taken."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    kube = Kube(access)
    scraper = Scraper(
        settings, kube, options.tokens, period_s=options.period_s, window_s=options.window_s, port=options.admin_port
    )
    server = Server(scraper, kube.namespace, options.host, options.port)
    follower = Follower(kube, server, options.certificates)
    loops = [Loop("certificates", follower.follow), Loop("pods", scraper.round)]
    health = Health(loops, options.host, options.probe_port)
    try:
        probe_port = await health.start()
        log.info("metrics API", extra={"port": server.port, "probe_port": probe_port})
        async with asyncio.TaskGroup() as group:
            for loop in loops:
                group.create_task(loop.run(), name=loop.name)
            group.create_task(_ready(follower, scraper, health), name="ready")
            group.create_task(_until(stop), name="stop")
    except* _Stopped:
        log.info("stopping")
    finally:
        health.is_ready = False
        await server.close()
        await scraper.close()
        await health.close()
        await kube.close()


class Follower:
    """Serves with the certificates that there are now."""

    def __init__(self, kube: Kube, server: Server, certificates: Path) -> None:
        self._kube = kube
        self._server = server
        self._certificate = certificates / "tls.crt"
        self._key = certificates / "tls.key"
        self._seen: object = None
        self.serving = asyncio.Event()
        """Set once it serves."""

    async def follow(self) -> float:
        """Look for changes; returns when to look again (s). Raises `Unavailable`, `Invalid`; then what served goes on."""
        trust = await front_proxy.find(self._kube)
        seen = trust, *_contents(self._certificate, self._key)
        if seen != self._seen:
            context = front_proxy.context(trust, self._certificate, self._key)
            await self._server.serve(trust, context)
            log.info("new certificates" if self._seen else "serving")
            self._seen = seen
            self.serving.set()
        return FOLLOW_S


def _contents(*paths: Path) -> list[bytes]:
    """What is in the files. Raises `Invalid`."""
    try:
        return [path.read_bytes() for path in paths]
    except OSError as error:  # they are replaced just now
        raise Invalid(f"cannot read the certificate: {error}") from error


class _Stopped(Exception):
    """Somebody asked the process to stop."""


async def _until(stop: asyncio.Event) -> None:
    await stop.wait()
    raise _Stopped


async def _ready(follower: Follower, scraper: Scraper, health: Health) -> None:
    await follower.serving.wait()
    await scraper.settled.wait()
    health.is_ready = True
