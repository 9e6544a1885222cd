"""Registration of a process that is there now: it follows whatever registration of its name is the last one."""

from collections.abc import Mapping

from bearlake.errors import Conflict, Overloaded
from bearlake.metadata import Membership
from bearlake.metadata.model import Registration

TRY_COUNT = 10


async def register(
    store: Membership, name: str, *, zone: str | None, endpoints: Mapping[str, str], version: str, timeout_ms: int
) -> Registration:
    """Register under `name`, behind the last epoch that the store shows; see `Membership.register`.

    A refusal (`Conflict`) had no effect and this process still wants to register, so it looks again. Of two processes that start
    under one name, the last to register fences the other.

    Raises:
        Unavailable: the registration may or may not have happened; call this again.
        Overloaded: other processes register under this name all the time.
    """
    for _ in range(TRY_COUNT):
        after = await store.last_epoch(name)
        try:
            return await store.register(
                name, zone=zone, endpoints=endpoints, version=version, timeout_ms=timeout_ms, after=after
            )
        except Conflict:
            continue
    raise Overloaded(f"other processes register under the name {name!r} all the time")
