"""Promotions of imported streams, as the object store remembers them: for a restore of a backup that is older (decision 274).

A restore brings the metadata store back as of the backup, in which the stream may still be imported. An object for each promotion says
that it is not: it is put before the store forgets the import's mark. A stream never becomes an import again, so the object stays true.

    backups/promoted/<stream id, 32 hex digits>
"""

import uuid
from collections.abc import Awaitable, Callable

from bearlake.errors import AlreadyExists
from bearlake.objects import ObjectStore

PREFIX = "backups/promoted/"
Note = Callable[[uuid.UUID], Awaitable[None]]
"""Notes the promotion of a stream, by its id."""


def note_in(store: ObjectStore) -> Note:
    """Return what notes a promotion durably. Safe to repeat. It raises `Unavailable`."""

    async def note(stream_id: uuid.UUID) -> None:
        try:
            await store.put(f"{PREFIX}{stream_id.hex}", [b"{}"])
        except AlreadyExists:
            return

    return note


async def promoted(store: ObjectStore) -> set[str]:
    """Return the ids (32 hex digits) of all streams that were ever promoted. Raises `Unavailable`."""
    return {found.key.removeprefix(PREFIX) async for found in store.list(PREFIX)}
