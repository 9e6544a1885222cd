"""The tables that streams should have, found in turns of the event loop and kept until the streams change."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bearlake.metadata.model import Stream
from bearlake.streams import configs as stream_configs
from bearlake.streams.catalog import Catalog
from bearlake.streams.current_rules import current_stream
from bearlake.streams.turns import in_turns
from bearlake.table.naming import table_identifiers
from bearlake.table.warehouse.model import Name

AT_ONCE: Final = 500
"""Streams of one turn: about 10 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """Tables of streams. `by_name`: the streams that should have a table. `by_suffix`: names of all streams, by the first 8 digits of their
    ids, and of those derived for their current tables."""

    by_name: Mapping[Name, Stream]
    by_suffix: Mapping[str, Sequence[str]]


class PlannedTables:
    """Looks through the streams once for each version of them. Belongs to one event loop."""

    def __init__(self, streams: Catalog) -> None:
        self._streams = streams
        self._version = -1
        self._found = Planned(by_name={}, by_suffix={})
        self._lock = asyncio.Lock()

    async def find(self) -> Planned:
        """Return the tables of all streams that this server knew at the time of the call, or later."""
        if self._version != self._streams.version:
            async with self._lock:
                if self._version != self._streams.version:
                    version = self._streams.version
                    self._found, self._version = await self._planned(), version
        return self._found

    async def _planned(self) -> Planned:
        by_name: dict[Name, Stream] = {}
        by_suffix: dict[str, list[str]] = {}
        async for part in in_turns(list(self._streams.views()), AT_ONCE):
            for view in part:
                for found in (view.stream, current_stream(view.stream)):
                    by_suffix.setdefault(found.id.hex[:8], []).append(view.stream.name)
                if stream_configs.table_rules(view.name, view.stream.configs).is_enabled:
                    namespace, name = table_identifiers(view.stream)[0]
                    by_name[(*namespace.split("."), name)] = view.stream
        return Planned(by_name=by_name, by_suffix=by_suffix)
