"""Quotas for a command, which opens the metadata store itself: it needs neither a running server nor a right.

Servers follow the change through the commit log.
"""

from collections.abc import Sequence

from bearlake.app.startup import opened_metadata
from bearlake.metadata.quotas import Quota, QuotaChange
from bearlake.settings.document import Settings
from bearlake.streams.quotas.control import QuotaControl


async def change(settings: Settings, changes: Sequence[QuotaChange]) -> None:
    """Set and delete quotas, all or none. Raises `Invalid`, `Overloaded`, `Unavailable`."""
    async with opened_metadata(settings) as metadata:
        await QuotaControl(metadata.quotas).change(changes)


async def listed(settings: Settings) -> Sequence[Quota]:
    """Return all quotas, in a fixed order. Raises `Unavailable`."""
    async with opened_metadata(settings) as metadata:
        return await QuotaControl(metadata.quotas).list()
