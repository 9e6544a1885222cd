"""Registers a running process after the last registration of its name."""

from collections.abc import Mapping

from bearlake.errors import Conflict, Overloaded
from bearlake.metadata import Membership
from bearlake.metadata.model import Registration

TRY_COUNT = 10


async def register(
    store: Membership, name: str, *, zone: str | None, endpoints: Mapping[str, str], version: str, timeout_ms: int
) -> Registration:
    """Register under `name`, after the last epoch that the store shows; see `Membership.register`.

    A `Conflict` has no effect, so this process reads the last epoch and tries again. If two processes start under one name, the last to
    register fences the other.

    Raises:
        Unavailable: the registration may or may not have happened; call again.
        Overloaded: other processes keep registering under this name.
    """
    for _ in range(TRY_COUNT):
        after = await store.last_epoch(name)
        try:
            return await store.register(
                name, zone=zone, endpoints=endpoints, version=version, timeout_ms=timeout_ms, after=after
            )
        except Conflict:
            continue
    raise Overloaded(f"too many concurrent registrations under the name {name!r}")
