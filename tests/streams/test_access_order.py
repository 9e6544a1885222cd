"""Records behind a change of the access rules in the commit log are seen only under the new rules.

A client was promised: once a right is revoked, no server gives it records that were written after that.
"""

import asyncio

from typing_extensions import override

from bearlake.clock import ManualClock
from bearlake.index.segments import SegmentIndex
from bearlake.index.tail import TailIndex
from bearlake.metadata import Metadata
from bearlake.metadata.access_rules import (
    AccessRule,
    AccessRules,
    Operation,
    PatternKind,
    Permission,
    Resource,
    RuleSet,
)
from bearlake.metadata.model import StreamSpec
from bearlake.metadata.sqlite.settings import SqliteSettings
from bearlake.metadata.sqlite.store import open_sqlite
from bearlake.streams.access.control import AccessControl, AccessSettings
from bearlake.streams.catalog import Catalog
from bearlake.streams.follower import Follower, FollowerSettings
from bearlake.streams.principal import Principal
from fixtures.waiting import until

ALICE = Principal("User", "alice")
RULE = AccessRule(Resource.STREAM, "t", PatternKind.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW)


class Held(AccessRules):
    """Reads of the rules wait until they are released."""

    def __init__(self, inner: AccessRules) -> None:
        self.inner = inner
        self.is_free = asyncio.Event()
        self.is_free.set()
        self.waiting = 0

    @override
    async def revision(self) -> int:
        return await self.inner.revision()

    @override
    async def read(self) -> RuleSet:
        self.waiting += 1
        await self.is_free.wait()
        self.waiting -= 1
        return await self.inner.read()


async def test_records_behind_a_revoked_right_are_not_visible_before_the_new_rules() -> None:
    metadata: Metadata = await open_sqlite(None, SqliteSettings(), clock=ManualClock())
    stored = Held(metadata.access)
    await metadata.access.change(created=[RULE], deleted=[], revision=0)
    access = AccessControl(stored, AccessSettings(allow_if_no_rule=False))
    tail = TailIndex(10, lambda _: None)
    settings = FollowerSettings(wait_ms=600_000, retry_pause_ms=1)
    catalog = Catalog(metadata.streams, 10)
    follower = Follower(metadata.log, tail, SegmentIndex(10), catalog, [access], settings, lambda _: None)
    await follower.start()
    revoked = tail.position + 1

    stored.is_free.clear()
    await metadata.access.change(created=[], deleted=[RULE], revision=1)
    await metadata.streams.create(StreamSpec(name="t", partition_count=1))  # a later entry
    following = asyncio.create_task(follower.run())
    await until(lambda: stored.waiting)
    assert access.allows(ALICE, Operation.READ, Resource.STREAM, "t")
    assert tail.position < revoked

    stored.is_free.set()
    await until(lambda: tail.position > revoked)
    assert not access.allows(ALICE, Operation.READ, Resource.STREAM, "t")
    following.cancel()
    await metadata.close()
