"""Access rules for a command, which opens the metadata store itself: it needs neither a running server nor a right.

Servers follow the change through the commit log.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from bearlake.app.startup import backend_settings
from bearlake.metadata.access_rules import AccessRule, RuleFilter
from bearlake.metadata.open import open_metadata
from bearlake.settings.document import Settings
from bearlake.streams.access.control import AccessControl


async def create(settings: Settings, rule: AccessRule) -> None:
    """Create a rule, if it does not exist. Raises `Invalid`, `Overloaded`, `Unavailable`."""
    async with _opened(settings) as access:
        await access.create([rule])


async def delete(settings: Settings, selected: RuleFilter) -> Sequence[AccessRule]:
    """Delete the rules that the filter selects; returns them. Raises `Overloaded`, `Unavailable`."""
    async with _opened(settings) as access:
        return (await access.delete([selected]))[0]


async def listed(settings: Settings, selected: RuleFilter) -> Sequence[AccessRule]:
    """Return the rules that the filter selects, in a fixed order. Raises `Unavailable`."""
    async with _opened(settings) as access:
        return await access.list(selected)


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[AccessControl]:
    metadata = await open_metadata(settings.metadata.url, backend_settings(settings.metadata))
    try:
        yield AccessControl(metadata.access)
    finally:
        await metadata.close()
