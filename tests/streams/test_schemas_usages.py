"""A schema that very many subjects use: whether a caller may read it is found page by page, in turns of the event loop."""

from collections.abc import AsyncIterator, Sequence

import pytest
from typing_extensions import override

from bearlake.errors import Denied
from bearlake.metadata.open import open_metadata
from bearlake.metadata.schemas import DEFAULT_CONTEXT, Registration, SchemaStore, SubjectKey, SubjectVersion, VersionKey
from bearlake.streams.principal import ANONYMOUS, INTERNAL, Authorizer, Operation, Principal, Resource
from bearlake.streams.schemas import listing
from bearlake.streams.schemas.model import Draft
from bearlake.streams.schemas.service import Schemas
from bearlake.streams.turns import AT_ONCE
from fixtures.turns import CountingTurns

COUNT = 2 * AT_ONCE + 100


class OneSubject(CountingTurns):
    """Allows one subject; counts how often it is asked."""

    def __init__(self, name: str = "") -> None:
        super().__init__()
        self.name = name

    @override
    def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
        self.tick()
        return who == INTERNAL or name == self.name


class Used:
    """A registry in which `COUNT` subjects use schema 1; `pages` are the reads of these usages, by their first subject."""

    def __init__(self, store: SchemaStore) -> None:
        self.rights = OneSubject()
        self.schemas = Schemas(store, authorizer=self.rights)
        self.pages: list[str] = []
        self._store = store

    async def fill(self) -> None:
        await self.schemas.register(INTERNAL, "s000000", Draft(text='"int"'))
        row = (await self._store.schemas(DEFAULT_CONTEXT, [1]))[0]
        for number in range(1, COUNT):
            key = SubjectKey(DEFAULT_CONTEXT, f"s{number:06}")
            state = await self._store.subject(key)
            await self._store.register(
                Registration(
                    subject=key,
                    revision=state.revision,
                    fingerprint=row.fingerprint,
                    body=row.body,
                    content=row.content,
                )
            )

    def allow(self, subject: str) -> OneSubject:
        """Let callers read and see only this subject."""
        self.rights.name = subject
        self.rights.count = self.rights.most = 0
        return self.rights


@pytest.fixture
async def used(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Used]:
    monkeypatch.setattr(listing, "USAGES_PAGE_COUNT", AT_ONCE)
    metadata = await open_metadata("memory:///")
    made = Used(metadata.schemas)
    await made.fill()
    usages = type(metadata.schemas).usages

    async def noted(
        store: SchemaStore, context: str, schema_id: int, *, after: VersionKey | None = None, limit: int
    ) -> Sequence[SubjectVersion]:
        found = await usages(store, context, schema_id, after=after, limit=limit)
        made.pages.append(found[0].subject.name)
        return found

    monkeypatch.setattr(type(metadata.schemas), "usages", noted)
    yield made
    made.schemas.close()
    await metadata.close()


async def test_a_caller_may_read_a_schema_by_the_last_of_many_subjects(used: Used) -> None:
    rights = used.allow(f"s{COUNT - 1:06}")

    assert (await used.schemas.schema(ANONYMOUS, 1)).text == '"int"'

    assert used.pages == ["s000000", f"s{AT_ONCE:06}", f"s{2 * AT_ONCE:06}"]
    assert rights.count > COUNT
    assert rights.most <= AT_ONCE + 2  # and the right on the context


async def test_the_search_ends_with_the_first_subject_that_the_caller_may_read(used: Used) -> None:
    rights = used.allow("s000003")

    assert (await used.schemas.schema(ANONYMOUS, 1)).text == '"int"'

    assert not used.pages, "the store need not sort all usages for a request whose answer a few decide"
    assert rights.count <= 6


async def test_the_search_goes_on_in_order_if_a_few_usages_do_not_decide(used: Used) -> None:
    rights = used.allow("s000150")

    assert (await used.schemas.schema(ANONYMOUS, 1)).text == '"int"'

    assert used.pages == ["s000000"]
    assert 150 < rights.count <= 2 * AT_ONCE


async def test_a_caller_without_any_right_is_denied_in_turns(used: Used) -> None:
    rights: Authorizer = used.allow("")

    with pytest.raises(Denied):
        await used.schemas.schema(ANONYMOUS, 1)

    assert len(used.pages) == 3
    assert isinstance(rights, OneSubject)
    assert rights.most <= AT_ONCE + 2


async def test_the_usages_of_a_schema_are_listed_in_turns(used: Used, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "USAGES_PAGE_COUNT", 2 * COUNT)
    rights = used.allow("s000300")

    found = await used.schemas.usages(ANONYMOUS, 1)

    assert [(usage.subject.name, usage.number) for usage in found] == [("s000300", 1)]
    assert rights.most <= AT_ONCE + 2
