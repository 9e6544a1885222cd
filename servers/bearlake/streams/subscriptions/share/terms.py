"""The terms of a share group, which its configs and the servers' settings set, and what a member asks for."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from typing_extensions import override

from bearlake.errors import BearlakeError, Invalid, NotFound, Unavailable
from bearlake.metadata.model import PartitionKey
from bearlake.metadata.subscriptions import Cursor
from bearlake.streams.subscriptions.share.acquiring import Acquired

CURSOR_PREFIX = "\x01share/"
"""Names of share groups' cursors begin with it; subscriptions of other protocols must not."""

BY_DURATION = -3
"""`ShareTerms.reset`: the first record that is not older than `reset_ms`. `EARLIEST` and `LATEST` are those of `model.py`."""


class NoState(NotFound):
    """The group does not exist, or has nothing to do with the stream: no member of it has subscribed to the stream."""


def cursor_name(group: str) -> str:
    """Return the name of the cursors of a share group."""
    return CURSOR_PREFIX + group


def group_of(name: str) -> str | None:
    """Return the share group whose cursors have this name; None for a subscription of another protocol."""
    return name.removeprefix(CURSOR_PREFIX) if name.startswith(CURSOR_PREFIX) else None


def refuse_share_name(name: str) -> None:
    """Raise `Invalid` if a subscription of another protocol would get the name of a share group's cursors."""
    if group_of(name) is not None:
        raise Invalid("a subscription's name must not begin like those of share groups' cursors")


def without_shares(stored: Sequence[Cursor]) -> list[Cursor]:
    """Leave out the cursors of share groups."""
    return [cursor for cursor in stored if group_of(cursor.name) is None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareTerms:
    """How records are delivered to a share group."""

    lock_ms: int
    """Time (ms) for which acquired records are locked."""
    delivery_count_max: int
    """Deliveries of a record, after which it is done."""
    count_max: int
    """Offsets in flight in one partition."""
    is_committed: bool
    """Whether members get only records of committed transactions."""
    may_renew: bool
    """Whether members may renew their locks."""
    reset: int
    """Where a group begins in a partition: `EARLIEST`, `LATEST`, `BY_DURATION`."""
    reset_ms: int = 0
    """`BY_DURATION`: age (ms) of the oldest record."""


class TermsSource(Protocol):
    """Where the terms of groups come from."""

    def known(self, group: str) -> ShareTerms:
        """Return the terms as this server knows them; another server's change may be some seconds old."""

    async def newest(self, group: str) -> ShareTerms:
        """Return the terms as the store has them. Raises `Unavailable`."""

    async def check_state(self, group: str, partition: PartitionKey) -> bool:
        """Raise `NoState` unless the group's coordinator has noted, as of now, that the group has state in the partition's stream.

        Returns whether the partition was added to the stream after that. Raises `Unavailable`. A source without coordinators allows every
        group.
        """


class NoTerms(TermsSource):
    """The terms of groups are not known: every call raises `Unavailable`."""

    @override
    def known(self, group: str) -> ShareTerms:
        raise Unavailable(f"the terms of share group {group!r} are not known")

    @override
    async def newest(self, group: str) -> ShareTerms:
        return self.known(group)

    @override
    async def check_state(self, group: str, partition: PartitionKey) -> bool:
        self.known(group)
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareAsk:
    """A member asks for records of several partitions."""

    group: str
    member: str
    partitions: Sequence[PartitionKey]
    """In the order in which the member should get records."""
    bytes_max: int
    record_count_max: int
    """>= 1; exceeded by the rest of a batch unless `is_strict`."""
    is_strict: bool
    wait_ms: int
    """Longest wait (ms) for the first record."""
    via: str = ""
    """The server that the member asked. When the member leaves this server, what it has acquired through others stays locked."""


@dataclass(slots=True, kw_only=True)
class ShareAnswer:
    """What a member gets of one partition: what it acquired, and the batches that have these records."""

    partition: PartitionKey
    acquired: Sequence[Acquired] = ()
    views: list[memoryview] = field(default_factory=list)
    error: BearlakeError | None = None
