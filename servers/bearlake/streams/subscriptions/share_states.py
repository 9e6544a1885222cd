"""Which share groups have state in the partitions that this server dispatches: finds, creates and deletes it.

A group may have state in a partition only while its coordinator has noted that (`TermsSource.check_state`). So a member of a deleted
group cannot bring its state back, and a client cannot create state for a group that does not exist:

    deletion    delete the cursors    delete the group, or the note       delete the cursors again
    creation    read the count of deletions    check the note    create, unless the count has grown

Whatever their order, no cursor is left: a creation that still finds the note either comes before the second deletion, or is refused.
"""

from functools import partial

from bearlake.errors import Overloaded
from bearlake.metadata.model import PartitionKey
from bearlake.metadata.subscriptions import check_cursor_name
from bearlake.streams.subscriptions.creating import ATTEMPTS_MAX, changing, create_cursor, refuse_creations
from bearlake.streams.subscriptions.held import HeldPartition
from bearlake.streams.subscriptions.holding import Holdings
from bearlake.streams.subscriptions.model import Closed
from bearlake.streams.subscriptions.share.partition import SharePartition
from bearlake.streams.subscriptions.share.terms import TermsSource, cursor_name


class ShareStates:
    """The states of share groups in held partitions. Use it from the event loop's thread only."""

    def __init__(self, holdings: Holdings, terms: TermsSource) -> None:
        self._holdings = holdings
        self._terms = terms

    def present(self, group: str, partition: PartitionKey) -> SharePartition | None:
        """Return the group's state if it is in memory. Where it is not, members hold no locks."""
        held = self._holdings.get(partition)
        return None if held is None else held.shares.get(group)

    async def find(self, held: HeldPartition, group: str) -> SharePartition | None:
        """Return the group's state if it exists. Raises `Fenced`, `Unavailable`."""
        if group not in held.shares:
            await self._holdings.adopt_stored(held)
        return held.shares.get(group)

    async def check(self, group: str, partition: PartitionKey) -> bool:
        """Raise `NoState` if the group must not have state in the partition, `Invalid` if none can have its name; `Unavailable`.

        Returns whether the partition was added to its stream after the group came to know the stream.
        """
        check_cursor_name(cursor_name(group))
        return await self._terms.check_state(group, partition)

    async def create(self, held: HeldPartition, group: str, mark_delete: int) -> SharePartition:
        """Return the group's state; creates it if needed, at `mark_delete`.

        Raises as `create_cursor` and `check`; `Fenced` if the partition was released meanwhile.
        """
        count_max = self._holdings.settings.subscription_per_partition_max
        if group not in held.shares and len(held.shares) >= count_max:
            raise Overloaded(f"partition {held.partition} has reached its limit of {len(held.shares)} share groups")
        drop_count = held.drop_count
        check = partial(self.check, group, held.partition)
        stored = await create_cursor(self._holdings.cursors, held.partition, cursor_name(group), mark_delete, {}, check)
        if held.drop_count == drop_count:
            return held.adopt_share(stored, stored.mark_delete)
        found = await self.find(held, group)  # it may be deleted again
        if found is None:
            raise changing(held.partition)
        return found

    async def forget(self, held: HeldPartition, group: str) -> None:
        """Delete the group's state, if there is any; creations that began earlier are refused. Raises `Fenced`, `Unavailable`."""
        for _ in range(ATTEMPTS_MAX):
            found = await self.find(held, group)
            if found is not None:
                await self._holdings.forget(found.saved)
                found.close(Closed.UNSUBSCRIBED)
                return
            if await refuse_creations(self._holdings.cursors, held.partition, held.lease):
                return
        raise changing(held.partition)
