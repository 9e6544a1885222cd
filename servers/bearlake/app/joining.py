"""A command that joins the deployment as a server without clients, such as an import: registered, with a stream service of its own.

With a port, the process also has an admin API, which serves health and metrics.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from bearlake.app.startup import open_stores
from bearlake.errors import Fenced
from bearlake.metadata import Metadata
from bearlake.owned_tasks import Tasks
from bearlake.serving.admin.auth import read_metrics_token, read_token
from bearlake.serving.admin.server import AdminServer
from bearlake.serving.admin.token import AdminToken
from bearlake.serving.groups.peers import GroupPeers
from bearlake.serving.listener import open_listener
from bearlake.serving.membership import RegisteredServer
from bearlake.serving.trust import PeerTrust
from bearlake.settings.document import Settings
from bearlake.streams.service import Streams


@asynccontextmanager
async def joined(settings: Settings, name: str, admin_port: int | None = None) -> AsyncIterator[Streams]:
    """A stream service of this process for the block, on the stores of the settings; registered under `name`, without endpoints.

    `admin_port`: that of the admin API, 0 for a free one; None: there is none. Its other settings are those of `settings.admin`.

    The block is cancelled, and `Fenced` raised, if a newer process registers the name. Raises as `open_stores`; `Unavailable` also if the
    port is taken.
    """
    async with AsyncExitStack() as closing:
        token = read_token(settings.admin, os.environ)
        metadata, store = await open_stores(settings, closing)
        fenced = asyncio.Event()
        own = replace(settings.server, name=name)
        registered = await RegisteredServer.join(metadata.servers, own, {}, fenced.set)
        closing.push_async_callback(registered.leave)
        if admin_port is not None:
            await _serve_admin(settings, admin_port, metadata, registered, token, closing)
        trust = PeerTrust(settings.admin.tls_ca_file, settings.admin.tls_server_name)
        peers = GroupPeers(registered, settings.streams.groups, token, trust)
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
                fence = group.create_task(_until(fenced, name))
                async with Tasks() as tasks:
                    tasks.own("heartbeats", registered.run())
                    tasks.own("streams", streams.run())
                    yield streams
                    await streams.drain()
                fence.cancel()
        except ExceptionGroup as errors:  # the block's own error, or that of a task
            fenced_errors = errors.subgroup(Fenced)
            raise _first(fenced_errors or errors) from errors


async def _serve_admin(
    settings: Settings,
    port: int,
    metadata: Metadata,
    registered: RegisteredServer,
    token: AdminToken | None,
    closing: AsyncExitStack,
) -> None:
    admin = replace(settings.admin, port=port)
    listener = open_listener(admin, "admin")
    closing.callback(listener.socket.close)
    metrics_token = read_metrics_token(admin, token)
    server = AdminServer(listener, metadata.log, registered, admin, token=token, metrics_token=metrics_token)
    closing.push_async_callback(server.close)
    await server.start()
    server.is_ready = True


def _first(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


async def _until(fenced: asyncio.Event, name: str) -> None:
    await fenced.wait()
    raise Fenced(f"a newer process took over {name}")
