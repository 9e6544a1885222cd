"""Access control in the schema registry: every call is checked, and lists contain only what the caller may see."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from bearlake.errors import Denied
from bearlake.metadata.open import open_metadata
from bearlake.metadata.schemas import Deletion, SubjectKey, SubjectState, VersionKey
from bearlake.metadata.sqlite.schemas import SqliteSchemas
from bearlake.streams.principal import ANONYMOUS, Authorizer, Operation, Principal, Resource
from bearlake.streams.schemas import names
from bearlake.streams.schemas.confined.pool import Pool
from bearlake.streams.schemas.model import Draft, Mode, Reference
from bearlake.streams.schemas.payloads import Choice, Payloads
from bearlake.streams.schemas.problems import Incompatible, SubjectNotFound
from bearlake.streams.schemas.service import Schemas

OWNER = Principal("User", "owner")
GUEST = Principal("User", "guest")
DRAFT = Draft(text='"int"')


class Grants(Authorizer):
    """The owner may do everything; the other principal only what was granted."""

    def __init__(self) -> None:
        self.granted: set[tuple[Operation, str]] = set()

    def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
        assert kind is Resource.SUBJECT
        return who == OWNER or (who == GUEST and (operation, name) in self.granted)


@pytest.fixture
def grants() -> Grants:
    return Grants()


@pytest.fixture
async def schemas(grants: Grants) -> AsyncIterator[Schemas]:
    metadata = await open_metadata("memory:///")
    made = Schemas(metadata.schemas, authorizer=grants)
    for subject in ("mine", "yours", ":.other:mine"):
        await made.register(OWNER, subject, DRAFT)
    yield made
    made.close()
    await metadata.close()


Call = Callable[[Schemas, Principal], Awaitable[object]]
CALLS: list[tuple[Operation, str, Call]] = [
    (Operation.WRITE, "mine", lambda schemas, who: schemas.register(who, "mine", DRAFT)),
    (Operation.READ, "mine", lambda schemas, who: schemas.lookup(who, "mine", DRAFT)),
    (Operation.READ, "mine", lambda schemas, who: schemas.check(who, "mine", DRAFT)),
    (Operation.READ, "mine", lambda schemas, who: schemas.version(who, "mine", 1)),
    (Operation.DESCRIBE, "mine", lambda schemas, who: schemas.versions(who, "mine", Deletion.LIVE)),
    (Operation.READ, "mine", lambda schemas, who: schemas.referrers(who, "mine", 1)),
    (Operation.DELETE, "mine", lambda schemas, who: schemas.delete_version(who, "mine", 1)),
    (Operation.DELETE, "mine", lambda schemas, who: schemas.delete_subject(who, "mine")),
    (Operation.ALTER, "mine", lambda schemas, who: schemas.set_config(who, "mine", {"normalize": True})),
    (Operation.ALTER, "mine", lambda schemas, who: schemas.set_mode(who, "mine", Mode.READONLY)),
    (Operation.ALTER, "__GLOBAL", lambda schemas, who: schemas.set_config(who, "", {"normalize": True})),
    (Operation.ALTER, ":.other:", lambda schemas, who: schemas.set_mode(who, ":.other:", Mode.READONLY)),
    (Operation.DESCRIBE, "mine", lambda schemas, who: schemas.mode(who, "mine", is_in_scope=True)),
    (Operation.DESCRIBE, "__GLOBAL", lambda schemas, who: schemas.config(who)),
    (Operation.READ, "__GLOBAL", lambda schemas, who: schemas.schema(who, 1)),
    (Operation.READ, ":.other:", lambda schemas, who: schemas.schema(who, 1, ":.other:")),
    (Operation.READ, "__GLOBAL", lambda schemas, who: schemas.last_id(who)),
]


@pytest.mark.parametrize(("operation", "name", "call"), CALLS)
async def test_a_call_needs_exactly_its_own_grant(
    schemas: Schemas, grants: Grants, operation: Operation, name: str, call: Call
) -> None:
    grants.granted = {(other, name) for other in Operation if other is not operation}
    with pytest.raises(Denied, match=f"User:guest may not {operation.value} Subject"):
        await call(schemas, GUEST)
    grants.granted = {(operation, name)}
    await call(schemas, GUEST)
    with pytest.raises(Denied):
        await call(schemas, ANONYMOUS)


async def test_lists_contain_what_the_caller_may_see(schemas: Schemas, grants: Grants) -> None:
    grants.granted = {(Operation.DESCRIBE, "mine"), (Operation.READ, "mine"), (Operation.DESCRIBE, ":.other:")}
    found = await schemas.all_versions(GUEST, names.ALL_CONTEXTS, Deletion.LIVE)

    assert await schemas.subjects(GUEST, names.ALL_CONTEXTS, Deletion.LIVE) == ["mine"]
    assert [version.subject.name for version in found] == ["mine"]
    assert await schemas.contexts(GUEST) == [".other"]
    assert len(await schemas.subjects(OWNER, names.ALL_CONTEXTS, Deletion.LIVE)) == 3


async def test_writing_values_registers_as_the_caller(schemas: Schemas, grants: Grants) -> None:
    payloads = Payloads(schemas)
    with pytest.raises(Denied):
        await payloads.writer(GUEST, Choice(type=DRAFT.type, text=DRAFT.text), "t", "value", payloads.budget())
    grants.granted = {(Operation.WRITE, "t-value")}
    writer = await payloads.writer(GUEST, Choice(type=DRAFT.type, text=DRAFT.text), "t", "value", payloads.budget())

    assert await payloads.write_all(writer, [b"1"], payloads.budget()) == [b"\0\0\0\0\1\2"]


OTHER = Draft(text='"long"')
RECORD = Draft(text='{"type": "record", "name": "R", "fields": [{"name": "secret_field", "type": "int"}]}')
SLOW = ["compiled", "incompatibilities"]
"""What child processes do for a registration."""


@pytest.fixture
def losing(grants: Grants, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Take all grants away while a child process does the named work."""

    def lose(work: str) -> None:
        does = getattr(Pool, work)

        async def slowly(*arguments: object) -> object:
            found = await does(*arguments)
            grants.granted = set()
            return found

        monkeypatch.setattr(Pool, work, slowly)

    return lose


@pytest.mark.parametrize("work", SLOW)
async def test_a_writer_who_loses_its_right_during_slow_work_registers_nothing(
    schemas: Schemas, grants: Grants, losing: Callable[[str], None], work: str
) -> None:
    grants.granted = {(Operation.WRITE, "mine")}
    losing(work)
    with pytest.raises(Denied):
        await schemas.register(GUEST, "mine", OTHER)

    assert await schemas.versions(OWNER, "mine", Deletion.LIVE) == [1]


IMPORTED = Draft(text=OTHER.text, id=77)
REFERRING = Draft(
    text='{"type": "array", "items": "R"}',
    references=(Reference(name="R", version=VersionKey(names.parse("record"), 1)),),
)


@pytest.mark.parametrize(
    ("lost", "draft"),
    [
        ((Operation.WRITE, "fresh"), OTHER),
        ((Operation.READ, "record"), REFERRING),
        ((Operation.WRITE, "__GLOBAL"), IMPORTED),
    ],
)
async def test_a_registration_needs_each_of_its_rights_when_it_is_stored(
    schemas: Schemas, grants: Grants, monkeypatch: pytest.MonkeyPatch, lost: tuple[Operation, str], draft: Draft
) -> None:
    await schemas.register(OWNER, "record", RECORD)
    await schemas.set_mode(OWNER, "fresh", Mode.READWRITE if draft.id is None else Mode.IMPORT)
    grants.granted = {(Operation.WRITE, "fresh"), (Operation.READ, "record"), (Operation.WRITE, "__GLOBAL")}
    reads = SqliteSchemas.subject

    async def slowly(store: SqliteSchemas, subject: SubjectKey, body: bytes | None = None) -> SubjectState:
        found = await reads(store, subject, body)
        grants.granted.discard(lost)
        return found

    monkeypatch.setattr(SqliteSchemas, "subject", slowly)
    with pytest.raises(Denied):
        await schemas.register(GUEST, "fresh", draft)

    with pytest.raises(SubjectNotFound):
        await schemas.versions(OWNER, "fresh", Deletion.LIVE)


READS: list[Callable[[Schemas], Awaitable[object]]] = [
    lambda schemas: schemas.check(GUEST, "mine", OTHER),
    lambda schemas: schemas.lookup(GUEST, "mine", OTHER),
]


@pytest.mark.parametrize("read", READS)
async def test_a_reader_who_loses_its_right_during_slow_work_learns_nothing(
    schemas: Schemas, grants: Grants, losing: Callable[[str], None], read: Callable[[Schemas], Awaitable[object]]
) -> None:
    grants.granted = {(Operation.READ, "mine")}
    losing("compiled")
    with pytest.raises(Denied):
        await read(schemas)


WAITING: list[Callable[[Schemas], Awaitable[object]]] = [
    lambda schemas: schemas.set_config(GUEST, "mine", {"normalize": True}),
    lambda schemas: schemas.set_mode(GUEST, "mine", Mode.READONLY),
    lambda schemas: schemas.delete_version(GUEST, "mine", 1),
    lambda schemas: schemas.delete_subject(GUEST, "mine"),
]


@pytest.mark.parametrize("change", WAITING)
async def test_a_change_that_waits_for_its_turn_needs_its_right_then(
    schemas: Schemas,
    grants: Grants,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Schemas], Awaitable[object]],
) -> None:
    grants.granted = {(Operation.ALTER, "mine"), (Operation.DELETE, "mine")}
    reads, begun, answered = SqliteSchemas.subject, asyncio.Event(), asyncio.Event()

    async def slowly(store: SqliteSchemas, subject: SubjectKey, body: bytes | None = None) -> SubjectState:
        begun.set()
        await answered.wait()
        return await reads(store, subject, body)

    monkeypatch.setattr(SqliteSchemas, "subject", slowly)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(schemas.set_config(OWNER, "mine", {"normalize": False}))
        await begun.wait()
        waiting = asyncio.ensure_future(change(schemas))
        await asyncio.sleep(0)
        grants.granted = set()
        answered.set()
        with pytest.raises(Denied):
            await waiting

    assert await schemas.versions(OWNER, "mine", Deletion.LIVE) == [1]
    assert await schemas.config(OWNER, "mine") == {"normalize": False}


async def test_only_who_may_read_a_subject_learns_why_a_schema_is_incompatible(
    schemas: Schemas, grants: Grants
) -> None:
    await schemas.register(OWNER, "hidden", RECORD)
    grants.granted = {(Operation.WRITE, "hidden")}
    with pytest.raises(Incompatible) as blind:
        await schemas.register(GUEST, "hidden", Draft(text='"string"'))
    grants.granted |= {(Operation.READ, "hidden")}
    with pytest.raises(Incompatible) as seeing:
        await schemas.register(GUEST, "hidden", Draft(text='"string"'))

    assert str(blind.value) == 'Schema being registered is incompatible with an earlier schema for subject "hidden"'
    assert not blind.value.messages
    assert "details: [" in str(seeing.value)
    assert "oldSchemaVersion: 1" in str(seeing.value)
