"""The authorizer of one server: which rules it applies, and when."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
from typing_extensions import override

from bearlake.clock import ManualClock
from bearlake.errors import Conflict, Invalid, Overloaded, Unavailable
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
    RuleFilter,
    RuleSet,
)
from bearlake.metadata.sqlite.settings import SqliteSettings
from bearlake.metadata.sqlite.store import open_sqlite
from bearlake.streams.access import control
from bearlake.streams.access.control import AccessControl, AccessSettings
from bearlake.streams.catalog import Catalog
from bearlake.streams.follower import Follower, FollowerSettings
from bearlake.streams.principal import ANONYMOUS, INTERNAL, Principal, at_host
from fixtures.waiting import until

ALICE = Principal("User", "alice")
CLOSED = AccessSettings(allow_if_no_rule=False)


def rule(name: str = "t", permission: Permission = Permission.ALLOW) -> AccessRule:
    return AccessRule(Resource.STREAM, name, PatternKind.LITERAL, "User:alice", "*", Operation.READ, permission)


class Rules(AccessRules):
    """Rules in memory; `before_change` runs before each change is decided, `reads` replaces the next answers."""

    def __init__(self) -> None:
        self.present = RuleSet(0, [])
        self.before_change: Callable[[], None] = lambda: None
        self.reads: list[RuleSet | Unavailable] = []

    @override
    async def revision(self) -> int:
        return self.present.revision

    @override
    async def read(self) -> RuleSet:
        found = self.reads.pop(0) if self.reads else self.present
        if isinstance(found, Unavailable):
            raise found
        return found

    @override
    async def change(self, *, created: Sequence[AccessRule], deleted: Sequence[AccessRule], revision: int) -> int:
        self.before_change()
        if revision != self.present.revision:
            raise Conflict("changed meanwhile")
        rules = [present for present in self.present.rules if present not in deleted] + list(created)
        self.present = RuleSet(revision + 1, rules)
        return revision + 1


def reads(access: AccessControl, name: str = "t", who: Principal = ALICE) -> bool:
    return access.allows(who, Operation.READ, Resource.STREAM, name)


async def test_rules_are_replaced_in_one_step() -> None:
    """Neither a reader of the rules nor another change sees the state in between."""
    rules = Rules()
    access = AccessControl(rules, CLOSED)
    await access.create([rule("a"), rule("b")])
    before = rules.present.revision

    assert await access.replace([rule("a"), rule("b"), rule("absent")], [rule("b"), rule("c")]) == [
        rule("a"),
        rule("b"),
    ]
    assert rules.present == RuleSet(before + 1, [rule("b"), rule("c")])
    assert [reads(access, name) for name in "abc"] == [False, True, True]
    assert await access.replace([rule("absent")], [rule("b")]) == []
    assert rules.present.revision == before + 1


async def test_nothing_is_allowed_before_the_rules_are_loaded() -> None:
    access = AccessControl(Rules(), AccessSettings(super_users=["User:root"]))
    assert not reads(access)
    assert reads(access, who=Principal("User", "root"))
    assert reads(access, who=INTERNAL)

    await access.refresh()
    assert reads(access)


async def test_a_change_of_rules_holds_for_callers_that_are_connected() -> None:
    access = AccessControl(Rules(), CLOSED)
    await access.refresh()
    assert [reads(access) for _ in range(2)] == [False, False]

    await access.create([rule()])
    assert [reads(access) for _ in range(2)] == [True, True]
    await access.delete([RuleFilter()])
    assert [reads(access) for _ in range(2)] == [False, False]


async def test_an_answer_that_is_older_than_the_applied_rules_changes_nothing() -> None:
    """Two reads are under way; the older one arrives last."""
    store = Rules()
    access = AccessControl(store, CLOSED)
    await access.create([rule()])
    older = store.present
    await access.delete([RuleFilter()])

    store.reads = [older]
    await access.refresh()
    assert not reads(access)


async def test_a_change_is_decided_again_when_others_change_rules_meanwhile() -> None:
    """Others delete all rules and create a newer one; the deletion is then decided on the rules that exist at that time."""
    store = Rules()
    access = AccessControl(store, CLOSED)
    await access.create([rule("old")])

    def meanwhile() -> None:
        store.before_change = lambda: None
        store.present = RuleSet(7, [rule("new")])

    store.before_change = meanwhile
    assert await access.delete([RuleFilter()]) == [[rule("new")]]
    assert store.present == RuleSet(8, [])


async def test_a_change_gives_up_when_others_never_stop_changing() -> None:
    store = Rules()
    access = AccessControl(store)

    def always() -> None:
        store.present = store.present._replace(revision=store.present.revision + 1)

    store.before_change = always
    with pytest.raises(Overloaded):
        await access.create([rule()])


async def test_rules_that_exist_are_not_changed_again() -> None:
    store = Rules()
    access = AccessControl(store)
    await access.create([rule(), rule()])
    await access.create([rule()])

    assert store.present == RuleSet(1, [rule()])


async def test_many_rules_are_compiled_without_holding_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer revision that arrives while an older one is compiled in a thread stays."""
    monkeypatch.setattr(control, "AT_ONCE_RULES_MAX", 2)
    store = Rules()
    access = AccessControl(store, CLOSED)
    store.present = RuleSet(1, [rule(), *(rule(f"s{n}") for n in range(3))])
    older = asyncio.create_task(access.refresh())
    await asyncio.sleep(0)
    store.present = RuleSet(2, [])
    await access.refresh()
    await older

    assert access.revision == 2
    assert not reads(access)
    await access.create([rule(f"s{n}") for n in range(5)])
    assert len(await access.list(RuleFilter())) == 5
    assert len((await access.delete([RuleFilter()]))[0]) == 5


async def test_the_number_of_filters_is_limited() -> None:
    with pytest.raises(Invalid):
        await AccessControl(Rules()).delete([RuleFilter()] * (control.FILTER_COUNT_MAX + 1))


async def test_the_masks_of_one_caller_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "MASKS_MAX", 3)
    access = AccessControl(Rules(), CLOSED)
    await access.create([rule("s9")])
    who = Principal("User", "alice")

    assert [reads(access, f"s{n}", who) for n in range(10)] == [False] * 9 + [True]
    assert len(who.grants.masks) == 3


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names whose masks are computed."""
    names: list[str] = []

    class Counting(control.Snapshot):
        __slots__ = ()

        @override
        def mask(self, who: Principal, kind: Resource, name: str) -> int:
            names.append(name)
            return super().mask(who, kind, name)

    monkeypatch.setattr(control, "Snapshot", Counting)
    return names


def request_of(groups: str, address: str = "10.0.0.1") -> Principal:
    """The principal of one request: a new object each time."""
    return at_host(Principal("User", "alice", frozenset(groups)), address)


async def test_requests_of_the_same_client_share_their_masks_until_the_rules_change(computed: list[str]) -> None:
    store = Rules()
    await store.change(created=[rule()], deleted=[], revision=0)
    access = AccessControl(store, CLOSED)
    await access.refresh()

    assert [reads(access, who=request_of("ab")) for _ in range(3)] == [True, True, True]
    assert computed == ["t"]

    await access.create([rule(permission=Permission.DENY)])

    assert [reads(access, who=request_of("ab")) for _ in range(3)] == [False, False, False]
    assert computed == ["t", "t"]


async def test_masks_are_not_shared_by_clients_with_other_groups_or_addresses(computed: list[str]) -> None:
    store = Rules()
    only_a = AccessRule(
        Resource.STREAM, "t", PatternKind.LITERAL, "Group:a", "10.0.0.1", Operation.READ, Permission.ALLOW
    )
    await store.change(created=[only_a], deleted=[], revision=0)
    access = AccessControl(store, CLOSED)
    await access.refresh()
    callers = [request_of("a"), request_of("b"), request_of("a", "10.0.0.2"), request_of("a")]

    assert [reads(access, who=who) for who in callers] == [True, False, False, True]
    assert len(computed) == 3


async def test_the_callers_whose_masks_are_kept_are_bounded(
    computed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "CALLERS_MAX", 2)
    store = Rules()
    await store.change(created=[rule()], deleted=[], revision=0)
    access = AccessControl(store, CLOSED)
    await access.refresh()

    for groups in ("a", "b", "a", "c", "a", "b"):
        assert reads(access, who=request_of(groups))

    assert len(computed) == 4  # a, b, c, and b again


async def test_the_default_does_not_let_anybody_administer() -> None:
    access = AccessControl(Rules(), AccessSettings(super_users=["Group:ops"]))
    await access.refresh()

    assert access.allows(ANONYMOUS, Operation.ALTER, Resource.CLUSTER, "kafka-cluster")
    assert not access.may_administer(ANONYMOUS, Operation.ALTER)
    assert access.may_administer(Principal("User", "u", frozenset({"ops"})), Operation.ALTER)


class FailingOnce(Rules):
    """Fails the first read after `fails` is set."""

    def __init__(self, inner: AccessRules) -> None:
        super().__init__()
        self.inner = inner
        self.fails = False

    @override
    async def read(self) -> RuleSet:
        if self.fails:
            self.fails = False
            raise Unavailable("away")
        return await self.inner.read()


async def test_a_follower_reads_changed_rules_again_until_the_store_answers() -> None:
    metadata: Metadata = await open_sqlite(None, SqliteSettings(), clock=ManualClock())
    store = FailingOnce(metadata.access)
    access = AccessControl(store, CLOSED)
    catalog = Catalog(metadata.streams, 10)
    tail = TailIndex(10, lambda _: None)
    settings = FollowerSettings(wait_ms=600_000, retry_pause_ms=1)
    follower = Follower(metadata.log, tail, SegmentIndex(10), catalog, [access], settings, lambda _: None)
    await follower.start()
    assert access.revision == 0
    await metadata.access.change(created=[rule()], deleted=[], revision=0)

    store.fails = True
    following = asyncio.create_task(follower.run())
    await until(lambda: reads(access))

    assert not store.fails
    assert tail.position == 1
    following.cancel()
    await metadata.close()
