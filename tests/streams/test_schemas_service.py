"""The registry of several servers on one store: the same answers, unique ids, bounded caches, and only the requested reads."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from bearlake.clock import ManualClock
from bearlake.errors import Overloaded, Unavailable
from bearlake.metadata import Metadata
from bearlake.metadata.faulty import FaultyMetadata, MetadataFaults
from bearlake.metadata.open import open_metadata
from bearlake.metadata.schemas import Deletion, VersionKey
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.schemas import names
from bearlake.streams.schemas.model import Draft, Reference, SchemaType
from bearlake.streams.schemas.problems import (
    Incompatible,
    InvalidSchema,
    InvalidSubject,
    InvalidVersion,
    SchemaNotFound,
    SchemaTooLarge,
    SubjectNotFound,
)
from bearlake.streams.schemas.service import Schemas
from bearlake.streams.schemas.settings import SchemasSettings


def enum(*symbols: str, name: str = "E") -> str:
    return json.dumps({"type": "enum", "name": name, "symbols": symbols})


def record(name: str, **types: Any) -> str:
    fields = [{"name": key, "type": type_} for key, type_ in types.items()]
    return json.dumps({"type": "record", "name": name, "fields": fields})


class Counting:
    """A store that counts the calls of each method."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.counts: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        self.counts[name] = self.counts.get(name, 0) + 1
        return getattr(self.inner, name)


@pytest.fixture
async def closing() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        found: str = request.getfixturevalue("postgresql_url")
        return found
    return "memory:///" if request.param == "memory" else f"sqlite://{tmp_path}/metadata.db"


async def opened(closing: AsyncExitStack, url: str = "memory:///") -> Metadata:
    metadata = await open_metadata(url, clock=ManualClock())
    closing.push_async_callback(metadata.close)
    return metadata


def on(closing: AsyncExitStack, store: Any, **settings: Any) -> Schemas:
    schemas = Schemas(store, SchemasSettings(**settings))
    closing.callback(schemas.close)
    return schemas


async def servers(closing: AsyncExitStack, url: str, count: int) -> list[Schemas]:
    """Servers of one deployment; in memory they share the store's only handle."""
    first = await opened(closing, url)
    stores = [first if url.startswith("memory") else await opened(closing, url) for _ in range(count - 1)]
    return [on(closing, metadata.schemas) for metadata in (first, *stores)]


async def test_other_servers_know_a_registered_schema_at_once(closing: AsyncExitStack, url: str) -> None:
    first, second = await servers(closing, url, 2)
    with pytest.raises(SchemaNotFound):
        await second.schema(ANONYMOUS, 1)
    made = await first.register(ANONYMOUS, "s", Draft(text=enum("A")))
    known = await second.register(ANONYMOUS, "s", Draft(text=enum("A")))

    assert made.schema.id == known.schema.id == (await second.schema(ANONYMOUS, 1)).id == 1
    await first.register(ANONYMOUS, "s", Draft(text=enum("A", "B")))
    assert (await second.version(ANONYMOUS, "s", names.LATEST)).number == 2
    await first.set_config(ANONYMOUS, "s", {"compatibility": "FULL"})
    with pytest.raises(Incompatible):
        await second.register(ANONYMOUS, "s", Draft(text=enum("A", "B", "C")))


async def test_concurrent_registrations_give_each_schema_one_id(closing: AsyncExitStack, url: str) -> None:
    several = await servers(closing, url, 3)
    randomness = random.Random(5)
    texts = [enum("A", name=f"E{at}") for at in range(8)]
    work = [(several[at % 3], f"s{at % 4}", text) for at in range(12) for text in texts]
    randomness.shuffle(work)
    await several[0].set_config(ANONYMOUS, "", {"compatibility": "NONE"})

    made = await asyncio.gather(
        *(schemas.register(ANONYMOUS, subject, Draft(text=text)) for schemas, subject, text in work)
    )

    ids = {
        text: {registered.schema.id for registered, (_, _, of) in zip(made, work, strict=True) if of == text}
        for text in texts
    }
    assert sorted(min(found) for found in ids.values()) == list(range(1, 9))
    assert all(len(found) == 1 for found in ids.values())
    for at in range(4):
        assert await several[1].versions(ANONYMOUS, f"s{at}", Deletion.ALL) == list(range(1, 9))


async def test_concurrent_incompatible_schemas_do_not_both_get_in(closing: AsyncExitStack, url: str) -> None:
    several = await servers(closing, url, 3)
    drafts = [Draft(text=record("R", a=kind)) for kind in ("int", "string", "boolean")]

    async def register(schemas: Schemas, draft: Draft) -> bool:
        try:
            await schemas.register(ANONYMOUS, "s", draft)
            return True
        except Incompatible:
            return False

    taken = await asyncio.gather(*(register(schemas, draft) for schemas, draft in zip(several, drafts, strict=True)))

    assert taken.count(True) == 1
    assert await several[0].versions(ANONYMOUS, "s", Deletion.ALL) == [1]


async def test_a_lost_reply_is_safe_to_repeat(closing: AsyncExitStack) -> None:
    metadata = await opened(closing)
    faulty = FaultyMetadata(metadata, MetadataFaults(error_rate=0.2, lost_reply_rate=0.3), random.Random(3))
    schemas = on(closing, faulty.schemas)

    async def persistently(text: str) -> int:
        while True:
            try:
                return (await schemas.register(ANONYMOUS, "s", Draft(text=text))).schema.id
            except Unavailable:
                await asyncio.sleep(0)

    ids = [await persistently(enum(*(f"S{at}" for at in range(count)))) for count in range(1, 20)]

    assert ids == list(range(1, 20))
    assert await on(closing, metadata.schemas).versions(ANONYMOUS, "s", Deletion.ALL) == ids


async def test_a_schema_by_id_is_asked_from_the_store_once(closing: AsyncExitStack) -> None:
    store = Counting((await opened(closing)).schemas)
    await on(closing, store.inner).register(ANONYMOUS, "s", Draft(text=enum("A")))
    schemas = on(closing, store)
    for _ in range(10):
        await schemas.schema(ANONYMOUS, 1)

    assert store.counts == {"schemas": 1}


async def test_the_absence_of_a_schema_is_not_remembered(closing: AsyncExitStack) -> None:
    metadata = await opened(closing)
    first, second = on(closing, metadata.schemas), on(closing, metadata.schemas)
    with pytest.raises(SchemaNotFound):
        await second.schema(ANONYMOUS, 1)
    with pytest.raises(SubjectNotFound):
        await second.version(ANONYMOUS, "s", 1)
    await first.register(ANONYMOUS, "s", Draft(text=enum("A")))

    assert (await second.schema(ANONYMOUS, 1)).text == (await second.version(ANONYMOUS, "s", 1)).schema.text


async def test_the_cache_is_bounded_and_drops_deleted_schemas(closing: AsyncExitStack) -> None:
    store = Counting((await opened(closing)).schemas)
    small = on(closing, store, cache_bytes_max=4096)
    for at in range(20):
        await small.register(ANONYMOUS, f"s{at}", Draft(text=enum("A", name=f"E{at}")))
    store.counts.clear()
    for _ in range(2):
        for at in range(20):
            assert (await small.schema(ANONYMOUS, at + 1)).id == at + 1
    assert store.counts["schemas"] == 40
    await small.schema(ANONYMOUS, 20)
    await small.delete_subject(ANONYMOUS, "s19")
    await small.delete_subject(ANONYMOUS, "s19", is_permanent=True)
    with pytest.raises(SchemaNotFound):
        await small.schema(ANONYMOUS, 20)


async def test_other_servers_forget_a_deleted_schema_in_time(closing: AsyncExitStack) -> None:
    metadata = await opened(closing)
    first, second = on(closing, metadata.schemas), on(closing, metadata.schemas, cached_ms=0)
    await first.register(ANONYMOUS, "s", Draft(text=enum("A")))
    await second.schema(ANONYMOUS, 1)
    await first.delete_subject(ANONYMOUS, "s")
    await first.delete_subject(ANONYMOUS, "s", is_permanent=True)

    with pytest.raises(SchemaNotFound):
        await second.schema(ANONYMOUS, 1)


async def test_a_registry_of_ten_thousand_subjects_is_there_at_once(closing: AsyncExitStack) -> None:
    store = Counting((await opened(closing)).schemas)
    full = on(closing, store)
    for at in range(10_000):
        await full.register(ANONYMOUS, f"subject-{at:05}", Draft(text='"string"'))
    store.counts.clear()
    fresh = on(closing, store)

    assert (await fresh.version(ANONYMOUS, "subject-09999", names.LATEST)).schema.id == 1
    assert sum(store.counts.values()) == 2
    assert len(await fresh.subjects(ANONYMOUS, names.ALL_CONTEXTS, Deletion.LIVE)) == 10_000
    assert store.counts["subjects"] == 11


async def test_a_write_fails_if_others_never_stop_changing(closing: AsyncExitStack) -> None:
    metadata = await opened(closing)
    schemas = on(closing, metadata.schemas, attempt_count_max=3)

    class Restless(Counting):
        async def register(self, registration: Any) -> Any:
            state = await self.inner.subject(registration.subject)
            await self.inner.set_config(registration.subject, None, revision=state.revision)
            return await self.inner.register(registration)

    restless = on(closing, Restless(metadata.schemas), attempt_count_max=3)

    with pytest.raises(Overloaded):
        await restless.register(ANONYMOUS, "s", Draft(text=enum("A")))
    assert (await schemas.register(ANONYMOUS, "s", Draft(text=enum("A")))).number == 1


async def test_references_have_a_limit_and_an_order(closing: AsyncExitStack) -> None:
    schemas = on(closing, (await opened(closing)).schemas, reference_count_max=3)

    def referring(at: int) -> Draft:
        version = names.parse(f"s{at - 1}")
        reference = Reference(name=f"R{at - 1}", version=VersionKey(version, 1))
        return Draft(text=record(f"R{at}", inner=f"R{at - 1}"), references=(reference,))

    await schemas.register(ANONYMOUS, "s0", Draft(text=record("R0", a="int")))
    for at in (1, 2, 3):
        await schemas.register(ANONYMOUS, f"s{at}", referring(at))
    with pytest.raises(SchemaTooLarge):
        await schemas.register(ANONYMOUS, "s4", referring(4))
    with pytest.raises(InvalidSchema):
        await schemas.register(ANONYMOUS, "s9", referring(9))


async def test_a_schema_has_a_size_limit_with_what_it_references(closing: AsyncExitStack) -> None:
    schemas = on(closing, (await opened(closing)).schemas, schema_bytes_max=200)
    with pytest.raises(SchemaTooLarge):
        await schemas.register(ANONYMOUS, "s", Draft(text=enum(*(f"SYMBOL_{at}" for at in range(30)))))
    protobuf = Draft(text='syntax = "proto3";' + " " * 200, type=SchemaType.PROTOBUF)
    with pytest.raises(SchemaTooLarge):
        await schemas.check(ANONYMOUS, "s", protobuf)


@pytest.mark.parametrize("text", ["", "__GLOBAL", ":.x:", ":.x", "a\x00b", "a\nb", "x" * 1025, "é" * 513, "\ud800"])
def test_not_every_text_is_a_subject(text: str) -> None:
    with pytest.raises(InvalidSubject):
        names.parse(text)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("a", (".", "a")),
        (":.x:a", (".x", "a")),
        (":.:a", (".", "a")),
        ("a:b", (".", "a:b")),
        (":a", (".", ":a")),
    ],
)
def test_subjects_name_their_context(text: str, key: tuple[str, str]) -> None:
    assert tuple(names.parse(text)) == key


@pytest.mark.parametrize("text", ["0", "-2", "1.0", "x", "", "٣", "2147483648", "99999999999"])
def test_not_every_text_is_a_version(text: str) -> None:
    with pytest.raises(InvalidVersion):
        names.parse_version(text)


def test_versions_are_numbers_or_the_latest() -> None:
    assert [names.parse_version(text) for text in ("1", "2147483647", "latest", "-1")] == [1, 2**31 - 1, -1, -1]
