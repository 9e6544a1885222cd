"""The process of the metrics API: scrapes pods, reloads certificates, and serves the APIs."""

import asyncio
import logging
import signal
from dataclasses import dataclass
from pathlib import Path

from bearlake.owned_tasks import Tasks
from bearlake_operator.controllers.health import Health
from bearlake_operator.controllers.reconcile_loop import ReconcileLoop
from bearlake_operator.errors import Invalid
from bearlake_operator.kube import KubeClient
from bearlake_operator.kube_config import ClientConfig
from bearlake_operator.metrics_api import front_proxy
from bearlake_operator.metrics_api.scraper import Scraper
from bearlake_operator.metrics_api.server import Server
from bearlake_operator.settings import Settings

log = logging.getLogger(__name__)

RELOAD_INTERVAL_S = 30.0
"""Interval of checks for changed certificates. (The kubelet updates a mounted Secret within about a minute.)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the command line.

    `certificates` is a folder with tls.crt and tls.key, `tokens` one with `<data layer>/<key>`, and `authorities` one with
    `<data layer>/ca.crt`. `admin_port` is that of the pods.
    A `port` or `probe_port` of 0 means any free port.
    """

    host: str
    port: int
    probe_port: int
    certificates: Path
    tokens: Path
    authorities: Path
    admin_port: int
    period_s: float
    window_s: float


async def run(settings: Settings, config: ClientConfig, options: Options) -> None:
    """Run until SIGTERM or SIGINT. Raises `ValueError` for contradicting options, `OSError` for a port that is in use."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    kube = KubeClient(config)
    scraper = Scraper(
        settings,
        kube,
        options.tokens,
        period_s=options.period_s,
        window_s=options.window_s,
        port=options.admin_port,
        authorities=options.authorities,
    )
    server = Server(scraper, kube.namespace, options.host, options.port)
    reloader = CertificateReloader(kube, server, options.certificates)
    loops = [ReconcileLoop("certificates", reloader.reload), ReconcileLoop("pods", scraper.scrape)]
    health = Health(loops, options.host, options.probe_port)
    try:
        probe_port = await health.start()
        log.info("starting the metrics API", extra={"port": server.port, "probe_port": probe_port})
        async with asyncio.TaskGroup() as group, Tasks() as tasks:
            group.create_task(_until(stop), name="stop")
            for loop in loops:
                tasks.own(loop.name, loop.run())
            tasks.start("ready", _set_ready(reloader, scraper, health))
            await tasks.run()
    except* _Stopped:
        log.info("stopping the metrics API")
    finally:
        health.is_ready = False
        await server.close()
        await scraper.close()
        await health.close()
        await kube.close()


class CertificateReloader:
    """Reloads the server's certificate and the front proxy's CA when they change."""

    def __init__(self, kube: KubeClient, server: Server, certificates: Path) -> None:
        self._kube = kube
        self._server = server
        self._certificate = certificates / "tls.crt"
        self._key = certificates / "tls.key"
        self._loaded: object = None
        self.serving = asyncio.Event()
        """Set when the server has a certificate and accepts connections."""

    async def reload(self) -> float:
        """Check for changes; returns the seconds until the next check.

        Raises `Unavailable`, `Invalid`; then the server keeps its current certificates.
        """
        config = await front_proxy.load(self._kube)
        current = config, *_contents(self._certificate, self._key)
        if current != self._loaded:
            context = front_proxy.tls_context(config, self._certificate, self._key)
            await self._server.serve(config, context)
            log.info("reloaded certificates" if self._loaded else "serving the metrics API")
            self._loaded = current
            self.serving.set()
        return RELOAD_INTERVAL_S


def _contents(*paths: Path) -> list[bytes]:
    """The contents of the files. Raises `Invalid`."""
    try:
        return [path.read_bytes() for path in paths]
    except OSError as error:  # the kubelet may be replacing them
        raise Invalid(f"cannot read the certificate: {error}") from error


class _Stopped(Exception):
    """A signal asked the process to stop."""


async def _until(stop: asyncio.Event) -> None:
    await stop.wait()
    raise _Stopped


async def _set_ready(reloader: CertificateReloader, scraper: Scraper, health: Health) -> None:
    await reloader.serving.wait()
    await scraper.has_rates.wait()
    health.is_ready = True
