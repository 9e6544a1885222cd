"""How far current tables are behind the tables of their streams, for commands that wait for them. Opens the stores as `lake.py`."""

import asyncio
from collections.abc import Callable, Mapping
from uuid import UUID

from bearlake.app.lake import Lake, behind, opened
from bearlake.errors import NotFound
from bearlake.metadata.model import Stream
from bearlake.settings.document import Settings
from bearlake.streams.current_rules import current_rules, current_stream


async def wait_for_current(
    settings: Settings, ids: Mapping[str, str], *, timeout_s: float, poll_s: float, show: Callable[[int], None]
) -> Mapping[str, int]:
    """Wait until the current tables of streams have what the streams' tables have at the time of the call.

    `ids`: the streams' names and ids. `show` gets the number of offsets that are missing, again and again. Returns the number by name after
    `timeout_s` seconds; empty: nothing is missing. Streams that are deleted, and current tables that are switched off, are not waited for.

    Raises:
        NotFound: the metadata store does not have these streams: it is that of another deployment.
        Unavailable: a store did not answer.
    """
    loop = asyncio.get_running_loop()
    end_s = loop.time() + timeout_s
    async with opened(settings) as lake:
        targets = {name: await _ends(lake, await _stream(lake, name, id_)) for name, id_ in ids.items()}
        while True:
            missing = {name: await _missing(lake, name, ids[name], ends) for name, ends in targets.items()}
            missing = {name: count for name, count in missing.items() if count}
            if not missing or loop.time() >= end_s:
                return missing
            show(sum(missing.values()))
            targets = {name: targets[name] for name in missing}
            await asyncio.sleep(poll_s)


async def _stream(lake: Lake, name: str, id_: str) -> Stream:
    found = await lake.metadata.streams.get(name)
    if found.id != UUID(id_):
        raise NotFound(f"stream {name} is another one in {lake.settings.metadata.url}")
    return found


async def _ends(lake: Lake, stream: Stream) -> Mapping[int, int]:
    state = await lake.tables.state(stream)
    return {} if state is None else state.ends


async def _missing(lake: Lake, name: str, id_: str, ends: Mapping[int, int]) -> int:
    try:
        stream = await _stream(lake, name, id_)
    except NotFound:
        return 0
    if current_rules(stream.configs) is None:
        return 0
    return behind(await _ends(lake, current_stream(stream)), ends)
