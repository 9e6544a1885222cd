"""Quotas for a command, which opens the metadata store itself: it needs neither a running server nor a right.

Servers follow the change through the commit log.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from bearlake.app.startup import backend_settings
from bearlake.metadata.open import open_metadata
from bearlake.metadata.quotas import Quota, QuotaChange
from bearlake.settings.document import Settings
from bearlake.streams.quotas.control import QuotaControl


async def change(settings: Settings, changes: Sequence[QuotaChange]) -> None:
    """Set and delete quotas, all or none. Raises `Invalid`, `Overloaded`, `Unavailable`."""
    async with _opened(settings) as quotas:
        await quotas.change(changes)


async def listed(settings: Settings) -> Sequence[Quota]:
    """Return all quotas, in a fixed order. Raises `Unavailable`."""
    async with _opened(settings) as quotas:
        return await quotas.list()


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[QuotaControl]:
    metadata = await open_metadata(settings.metadata.url, backend_settings(settings.metadata))
    try:
        yield QuotaControl(metadata.quotas)
    finally:
        await metadata.close()
