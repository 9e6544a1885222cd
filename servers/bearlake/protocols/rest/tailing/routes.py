"""All routes of /v1/stream."""

import asyncio

from aiohttp import web

from bearlake.protocols.rest.produce import Writing
from bearlake.protocols.rest.settings import RestSettings
from bearlake.protocols.rest.tailing.append_routes import AppendRoutes
from bearlake.protocols.rest.tailing.appending import Appending
from bearlake.protocols.rest.tailing.create_routes import CreateRoutes
from bearlake.protocols.rest.tailing.forking import Forking
from bearlake.protocols.rest.tailing.lifetimes import Lifetimes
from bearlake.protocols.rest.tailing.read_routes import ReadRoutes
from bearlake.protocols.rest.tailing.sequences import Sequences
from bearlake.protocols.rest.tailing.state import Tails
from bearlake.streams.service import Streams

_STREAM = "/v1/stream/{name}"
_PARTITION = _STREAM + "/{partition}"


class TailingRoutes:
    """The Durable Streams protocol."""

    def __init__(self, streams: Streams, settings: RestSettings, writing: Writing, draining: asyncio.Event) -> None:
        self.lifetimes = Lifetimes(streams, settings.sweep_ms, 2 * settings.request_timeout_ms)
        tails = Tails(streams, self.lifetimes)
        appending = Appending(streams, writing, settings.request_value_count_max)
        forking = Forking(streams, settings, tails, writing)
        self._create = CreateRoutes(streams, settings, self.lifetimes, writing, appending, forking)
        self._append = AppendRoutes(
            settings,
            self.lifetimes,
            tails,
            writing,
            appending,
            streams.metadata.producers,
            Sequences(streams, settings, appending),
        )
        self._read = ReadRoutes(streams, settings, self.lifetimes, tails, draining)

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handlers."""
        router.add_put(_STREAM, self._create.create)
        router.add_delete(_STREAM, self._create.delete)
        for path in (_STREAM, _PARTITION):
            router.add_post(path, self._append.append)
            router.add_head(path, self._read.head)
            router.add_get(path, self._read.read, allow_head=False)
