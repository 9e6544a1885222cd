"""The role of the console, a part of `bearlake up`, and the process of `bearlake console`, which needs no stores."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import click
import uvloop
from typing_extensions import override

from bearlake.app import ready
from bearlake.app.exits import Exit
from bearlake.app.role import OpenListener, Parts, Role
from bearlake.app.stop import Stop
from bearlake.errors import BearlakeError, Invalid
from bearlake.owned_tasks import TaskDied, Tasks
from bearlake.serving.addresses import url_of
from bearlake.serving.certificates import Certificates
from bearlake.serving.console.server import ConsoleServer
from bearlake.serving.listener import Listener, open_listener
from bearlake.settings.document import Given, Settings, load_document
from bearlake.telemetry import logs

log = logging.getLogger(__name__)


class ConsoleRole(Role):
    """A `Role`. It uses the APIs of its own process, over HTTP like any other client, unless settings name others."""

    def __init__(self) -> None:
        self._listener: Listener
        self._server: ConsoleServer

    @override
    def bind(self, settings: Settings, open_listener: OpenListener) -> Mapping[str, str]:
        self._listener = open_listener(settings.console, "console")
        return dict([self._listener.endpoint("console")])

    @override
    def build(self, parts: Parts) -> None:
        own = next(server for server in parts.registered.live() if server.ref == parts.registered.server)
        urls = ready.addresses(own.endpoints, parts.settings.listeners)
        urls = {"pulsar" if name == "pulsar_http" else name: url for name, url in urls.items() if name != "pulsar"}
        self._server = ConsoleServer(self._listener, parts.settings.console, urls)
        parts.closing.push_async_callback(self._server.close)

    @override
    async def start(self, tasks: Tasks) -> Mapping[str, str]:
        await self._server.start()
        return self._server.endpoints

    @override
    async def drain(self, deadline_ms: int) -> None:
        await self._server.drain(deadline_ms)


def run(config: Path | None, ready_file: Path | None, options: Given, environ: Mapping[str, str]) -> Exit:
    """Serve the console until asked to stop."""
    if ready_file is not None:
        ready_file.unlink(missing_ok=True)
    try:
        settings = load_document(config, environ, options, {}).settings
        logs.set_up(settings.logs)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(settings, ready_file))
    except TaskDied:
        return Exit.FAILED
    except Invalid as error:
        click.echo(f"bearlake: {error}", err=True)
        return Exit.USAGE
    except BearlakeError as error:
        click.echo(f"bearlake: {error}", err=True)
        return Exit.UNAVAILABLE


async def _serve(settings: Settings, ready_file: Path | None) -> Exit:
    """Raises `Invalid`, `Unavailable` (the port is taken)."""
    stop = Stop()
    stop.on_signals()
    async with AsyncExitStack() as closing:
        listener = open_listener(settings.console, "console")
        closing.callback(listener.socket.close)
        certificates = Certificates()
        if listener.tls is not None:
            certificates.watch(settings.console, "console", listener.tls)
        server = ConsoleServer(listener, settings.console, {})
        closing.push_async_callback(server.close)
        async with Tasks() as tasks:
            tasks.own("certificates", certificates.run())
            await server.start()
            url = url_of(server.endpoints["console"])
            if ready_file is not None:
                ready.write_ready_file(ready_file, {"console": url})
            click.echo(f"Open {click.style(url, bold=True)} in a browser: the console of {server.urls['admin']}")
            await stop.wait()
            await server.drain(0)
    return stop.exit
