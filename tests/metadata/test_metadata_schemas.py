"""The schema registry's state in every store."""

import asyncio
import hashlib
from typing import Any

import pytest

from bearlake.errors import AlreadyExists, Conflict
from bearlake.metadata import Metadata
from bearlake.metadata.schemas import (
    DEFAULT_CONTEXT,
    GLOBAL_SUBJECT,
    Deletion,
    Registration,
    Rules,
    SchemaStore,
    SubjectKey,
    VersionKey,
    VersionRow,
)

ORDERS, PAYMENTS = SubjectKey(DEFAULT_CONTEXT, "orders-value"), SubjectKey(DEFAULT_CONTEXT, "payments-value")
ELSEWHERE = SubjectKey(".elsewhere", "orders-value")
GLOBAL = SubjectKey(DEFAULT_CONTEXT, GLOBAL_SUBJECT)


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:16]


async def register(store: SchemaStore, subject: SubjectKey, text: str, **more: Any) -> VersionRow:
    revision = more.pop("revision", None)
    if revision is None:
        revision = (await store.subject(subject)).revision
    return await store.register(
        Registration(
            subject=subject,
            revision=revision,
            fingerprint=digest(text),
            body=digest(text.split("#")[0]),
            content=text,
            **more,
        )
    )


async def test_a_registered_schema_is_read_back_by_subject_id_body_and_fingerprint(
    metadata: Metadata, peer: Metadata
) -> None:
    made = await register(metadata.schemas, ORDERS, "one")
    state = await peer.schemas.subject(ORDERS, digest("one"))
    (row,) = await peer.schemas.schemas(DEFAULT_CONTEXT, [made.schema_id, 99])

    assert made == VersionRow(1, 1, is_deleted=False)
    assert list(state.versions) == [made]
    assert list(state.matches) == [row]
    assert (row.context, row.id, row.content, row.fingerprint) == (DEFAULT_CONTEXT, 1, "one", digest("one"))
    assert await peer.schemas.by_fingerprint(digest("one")) == [row]
    assert await peer.schemas.by_fingerprint(digest("two")) == []


async def test_an_unknown_subject_is_empty(metadata: Metadata) -> None:
    state = await metadata.schemas.subject(ORDERS, digest("one"))

    assert (state.revision, list(state.versions), list(state.matches)) == (0, [], [])
    assert [(rules.config, rules.mode) for rules in state.rules] == [(None, None)] * 3
    assert await metadata.schemas.contexts() == [DEFAULT_CONTEXT]
    assert await metadata.schemas.last_id(DEFAULT_CONTEXT) == 0


async def test_equal_fingerprints_share_an_id_within_a_context(metadata: Metadata) -> None:
    store = metadata.schemas
    first = await register(store, ORDERS, "one")
    same = await register(store, PAYMENTS, "one")
    other = await register(store, ORDERS, "two")
    similar = await register(store, ORDERS, "one#with metadata")
    elsewhere = await register(store, ELSEWHERE, "two")

    assert (first.schema_id, same.schema_id, other.schema_id, similar.schema_id) == (1, 1, 2, 3)
    assert (elsewhere.schema_id, elsewhere.number) == (1, 1)
    assert [row.id for row in (await store.subject(ORDERS, digest("one"))).matches] == [1, 3]
    assert await store.contexts() == [DEFAULT_CONTEXT, ".elsewhere"]
    assert (await store.last_id(DEFAULT_CONTEXT), await store.last_id(".elsewhere")) == (3, 1)


async def test_a_decision_on_an_old_revision_is_refused(metadata: Metadata, peer: Metadata) -> None:
    old = (await peer.schemas.subject(ORDERS)).revision
    await register(metadata.schemas, ORDERS, "one")

    with pytest.raises(Conflict):
        await register(peer.schemas, ORDERS, "two", revision=old)
    with pytest.raises(Conflict):
        await peer.schemas.delete(ORDERS, [1], is_permanent=False, revision=old)
    assert len((await metadata.schemas.subject(ORDERS)).versions) == 1


async def set_config(store: SchemaStore, subject: SubjectKey, config: str | None) -> None:
    await store.set_config(subject, config, revision=(await store.subject(subject)).revision)


async def test_a_late_config_or_mode_overwrites_no_newer_one(metadata: Metadata, peer: Metadata) -> None:
    store = metadata.schemas
    before = (await store.subject(ORDERS)).revision
    await set_config(peer.schemas, ORDERS, "newer")

    with pytest.raises(Conflict):
        await store.set_config(ORDERS, "late", revision=before)
    with pytest.raises(Conflict):
        await store.set_mode(ORDERS, "late", revision=before)
    assert (await peer.schemas.subject(ORDERS)).rules[0] == Rules("newer", None)


@pytest.mark.parametrize("level", [ORDERS, GLOBAL, SubjectKey(".elsewhere", GLOBAL_SUBJECT)])
async def test_changed_rules_of_any_level_change_the_revision(metadata: Metadata, level: SubjectKey) -> None:
    subject = ORDERS if level.context == DEFAULT_CONTEXT else ELSEWHERE
    before = (await metadata.schemas.subject(subject)).revision
    await set_config(metadata.schemas, level, "{}")

    with pytest.raises(Conflict):
        await register(metadata.schemas, subject, "one", revision=before)


async def test_rules_are_kept_per_level_and_can_be_unset(metadata: Metadata, peer: Metadata) -> None:
    store = metadata.schemas
    await set_config(store, GLOBAL, "of all")
    whole = SubjectKey(".elsewhere", GLOBAL_SUBJECT)
    await store.set_mode(whole, "of the context", revision=(await store.subject(whole)).revision)
    await set_config(store, ELSEWHERE, "of the subject")
    state = await peer.schemas.subject(ELSEWHERE)
    await set_config(store, ELSEWHERE, None)
    later = await peer.schemas.subject(ELSEWHERE)

    assert [rules.config for rules in state.rules] == ["of the subject", None, "of all"]
    assert [rules.mode for rules in state.rules] == [None, "of the context", None]
    assert [rules.config for rules in later.rules] == [None, None, "of all"]
    assert later.revision > state.revision


async def test_deleted_versions_are_hidden_softly_and_then_gone(metadata: Metadata, peer: Metadata) -> None:
    store = metadata.schemas
    await register(store, ORDERS, "one")
    await register(store, ORDERS, "two")
    await store.delete(ORDERS, [1], is_permanent=False, revision=(await store.subject(ORDERS)).revision)
    soft = await peer.schemas.subject(ORDERS)
    kept = await peer.schemas.schemas(DEFAULT_CONTEXT, [1, 2])
    await store.delete(ORDERS, [1], is_permanent=True, revision=soft.revision)
    gone = await peer.schemas.subject(ORDERS)

    assert [(row.number, row.is_deleted) for row in soft.versions] == [(1, True), (2, False)]
    assert [row.id for row in kept] == [1, 2]
    assert [row.number for row in gone.versions] == [2]
    assert [row.id for row in await peer.schemas.schemas(DEFAULT_CONTEXT, [1, 2])] == [2]


async def test_ids_are_never_reused_for_another_schema(metadata: Metadata) -> None:
    store = metadata.schemas
    await register(store, ORDERS, "one")
    await store.delete(ORDERS, [1], is_permanent=True, revision=(await store.subject(ORDERS)).revision)
    second = await register(store, ORDERS, "two")
    again = await register(store, ORDERS, "one")

    assert (second.number, second.schema_id) == (1, 2)
    assert (again.number, again.schema_id) == (2, 1)


async def test_an_import_keeps_its_id_and_version(metadata: Metadata) -> None:
    store = metadata.schemas
    imported = await register(store, ORDERS, "one", schema_id=40, version=7)
    repeated = await register(store, ORDERS, "one", schema_id=40, version=7)
    following = await register(store, ORDERS, "two")
    lower = await register(store, ORDERS, "three", schema_id=20, version=3)

    assert imported == repeated == VersionRow(7, 40, is_deleted=False)
    assert following == VersionRow(8, 41, is_deleted=False)
    assert lower == VersionRow(3, 20, is_deleted=False)
    assert await store.last_id(DEFAULT_CONTEXT) == 41
    with pytest.raises(AlreadyExists):
        await register(store, PAYMENTS, "four", schema_id=40)
    with pytest.raises(AlreadyExists):
        await register(store, ORDERS, "four", schema_id=50, version=7)
    assert await store.last_id(DEFAULT_CONTEXT) == 41


async def test_a_referenced_version_stays_as_long_as_its_referrer_exists(metadata: Metadata) -> None:
    store = metadata.schemas
    await register(store, ORDERS, "base")
    base = VersionKey(ORDERS, 1)
    referrer = await register(store, PAYMENTS, "on base", references=[base])

    assert await store.referrers(base) == [referrer.schema_id]
    with pytest.raises(Conflict):
        await store.delete(ORDERS, [1], is_permanent=False, revision=(await store.subject(ORDERS)).revision)
    await store.delete(PAYMENTS, [1], is_permanent=False, revision=(await store.subject(PAYMENTS)).revision)
    assert await store.referrers(base) == []
    await store.delete(ORDERS, [1], is_permanent=False, revision=(await store.subject(ORDERS)).revision)
    with pytest.raises(Conflict):
        await register(store, PAYMENTS, "on base", references=[base])


async def test_subjects_versions_and_usages_are_listed_in_pages(metadata: Metadata) -> None:
    store = metadata.schemas
    for subject in (PAYMENTS, ORDERS, ELSEWHERE):
        await register(store, subject, "one")
    await register(store, ORDERS, "two")
    await set_config(store, SubjectKey(DEFAULT_CONTEXT, "no versions"), "{}")
    await store.delete(PAYMENTS, [1], is_permanent=False, revision=(await store.subject(PAYMENTS)).revision)

    async def names(deletion: Deletion, **more: Any) -> list[SubjectKey]:
        return list(await store.subjects(**{"context": None, "limit": 10, **more}, deletion=deletion))

    assert await names(Deletion.LIVE) == [ORDERS, ELSEWHERE]
    assert await names(Deletion.ALL) == [ORDERS, PAYMENTS, ELSEWHERE]
    assert await names(Deletion.DELETED) == [PAYMENTS]
    assert await names(Deletion.ALL, context=DEFAULT_CONTEXT) == [ORDERS, PAYMENTS]
    assert await names(Deletion.ALL, context=".elsewhere") == [ELSEWHERE]
    assert await names(Deletion.ALL, prefix="orders") == [ORDERS, ELSEWHERE]
    assert await names(Deletion.ALL, after=ORDERS, limit=1) == [PAYMENTS]
    versions = await store.versions(context=None, deletion=Deletion.ALL, limit=3)
    rest = await store.versions(
        context=None, deletion=Deletion.ALL, after=VersionKey(versions[-1].subject, versions[-1].number), limit=3
    )
    assert [(version.subject, version.number) for version in (*versions, *rest)] == [
        (ORDERS, 1),
        (ORDERS, 2),
        (PAYMENTS, 1),
        (ELSEWHERE, 1),
    ]
    first = await store.usages(DEFAULT_CONTEXT, 1, limit=1)
    more = await store.usages(DEFAULT_CONTEXT, 1, after=VersionKey(first[0].subject, first[0].number), limit=5)
    assert [(usage.subject, usage.is_deleted) for usage in (*first, *more)] == [(ORDERS, False), (PAYMENTS, True)]


async def test_some_usages_of_a_schema_are_listed_in_no_order(metadata: Metadata) -> None:
    store = metadata.schemas
    for subject in (PAYMENTS, ORDERS, ELSEWHERE):
        await register(store, subject, "a")
    await store.delete(PAYMENTS, [1], is_permanent=False, revision=(await store.subject(PAYMENTS)).revision)
    usages = await store.some_usages(DEFAULT_CONTEXT, 1, limit=5)
    limited = await store.some_usages(DEFAULT_CONTEXT, 1, limit=1)

    assert set(usages) == set(await store.usages(DEFAULT_CONTEXT, 1, limit=5))
    assert len(usages) == 2
    assert len(limited) == 1
    assert limited[0] in usages
    assert not await store.some_usages(DEFAULT_CONTEXT, 2, limit=5)


async def test_many_servers_that_register_concurrently_agree_on_ids(backend: Any) -> None:
    handles = [await backend.open() for _ in range(4)]

    async def register_one(at: int) -> tuple[str, int]:
        store, text = handles[at % 4].schemas, f"text {at % 10}"
        subject = SubjectKey(DEFAULT_CONTEXT, f"subject-{at % 3}")
        while True:
            try:
                return text, (await register(store, subject, text)).schema_id
            except Conflict:
                await asyncio.sleep(0)

    answers = await asyncio.gather(*(register_one(at) for at in range(40)))

    given: dict[str, set[int]] = {}
    for text, schema_id in answers:
        given.setdefault(text, set()).add(schema_id)
    assert all(len(ids) == 1 for ids in given.values())
    assert sorted(schema_id for ids in given.values() for schema_id in ids) == list(range(1, 11))
    for name in ("subject-0", "subject-1", "subject-2"):
        state = await handles[0].schemas.subject(SubjectKey(DEFAULT_CONTEXT, name))
        assert [row.number for row in state.versions] == list(range(1, len(state.versions) + 1))
