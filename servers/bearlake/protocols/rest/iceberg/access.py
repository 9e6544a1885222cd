"""Who may use a table: who may use its stream."""

from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from bearlake.errors import Denied
from bearlake.metadata.model import Stream
from bearlake.protocols.rest.iceberg.planned import Planned, PlannedTables
from bearlake.streams.catalog import Catalog
from bearlake.streams.current_rules import current_stream
from bearlake.streams.principal import CLUSTER_NAME, Authorizer, Operation, Principal, Resource, require
from bearlake.streams.turns import in_turns
from bearlake.table.naming import stream_suffix
from bearlake.table.warehouse.model import Listed, Name, Owner, absent, forbidden

_DATA_ACTIONS = frozenset({"add-snapshot", "set-snapshot-ref", "remove-snapshot-ref", "remove-snapshots"})
"""Actions of updates that need WRITE; all others need ALTER."""
_SILENT_ACTIONS = frozenset({"assign-uuid", "set-statistics", "remove-statistics"})
"""Actions that an engine sends beside others, and that need WRITE."""
_LIST_COUNT_MIN: Final = 25_000
"""Names that a list counts for at least: how many tables are no stream's is not known before they are read."""
AT_ONCE: Final = 100
"""Tables of one turn of the event loop: with 1,000 access rules, a check takes up to 0.1 ms."""


class TableAccess:
    """Decides by the streams of one deployment and their access rules."""

    def __init__(self, streams: Catalog, authorizer: Authorizer) -> None:
        self._streams = streams
        self._authorizer = authorizer
        self._planned = PlannedTables(streams)

    def listing(self, who: Principal) -> AbstractAsyncContextManager[None]:
        """Make a list of namespaces or tables for `who`, in the block. Raises `Overloaded` if too many lists are under way for long."""
        return self._streams.listing(who, max(len(self._streams), _LIST_COUNT_MIN))

    def require_cluster(self, who: Principal, operation: Operation) -> None:
        """Raise `Denied` unless `who` may do `operation` to namespaces."""
        require(self._authorizer, who, operation, Resource.CLUSTER, CLUSTER_NAME)

    def require_new(self, who: Principal, name: Name) -> None:
        """Raise `Denied` unless `who` may create a table of this name."""
        require(self._authorizer, who, Operation.CREATE, Resource.STREAM, ".".join(name))

    def require_absent(self, who: Principal, name: Name) -> None:
        """Raise `Refused`, as for a table that it may not see, unless `who` may create a table of this name, which does not exist."""
        if not self._authorizer.allows(who, Operation.CREATE, Resource.STREAM, ".".join(name)):
            raise absent(name)

    async def subject(self, name: Name, owner: Owner | None) -> str:
        """Return the topic whose rules decide over the table: its stream, or one named like the table. Raises `Unavailable`."""
        if owner is not None and owner.stream_id is not None:
            view = self._streams.peek_id(owner.stream_id.bytes)
            if view is None:
                await self._streams.catch_up()
                view = self._streams.peek_id(owner.stream_id.bytes)
            if view is not None:
                return view.stream.name
        return ".".join(name)

    def stream(self, owner: Owner) -> Stream | None:
        """Return the stream whose own table it is, after `subject`; None if there is none, or none any more."""
        view = None if owner.stream_id is None or owner.is_current else self._streams.peek_id(owner.stream_id.bytes)
        return None if view is None else view.stream

    def current_stream(self, owner: Owner) -> Stream | None:
        """Return the stream that is derived for the current table of a stream, as `stream`."""
        view = (
            self._streams.peek_id(owner.stream_id.bytes) if owner.stream_id is not None and owner.is_current else None
        )
        return None if view is None else current_stream(view.stream)

    async def planned(self) -> Planned:
        """Return the tables that streams should have."""
        return await self._planned.find()

    async def planned_as(self, name: Name) -> Stream | None:
        """Return the stream that should have the table of this name, or None. Raises `Unavailable`."""
        if (found := (await self.planned()).by_name.get(name)) is None:
            await self._streams.catch_up()
            found = (await self.planned()).by_name.get(name)
        return found

    async def readable(self, who: Principal, statement: str) -> list[str]:
        """Return the streams that a statement may mean and `who` may read, by name; the others do not exist for the statement.

        Raises `Unavailable`.
        """
        await self._streams.catch_up()
        lowered, found = statement.lower(), list[str]()
        async for part in in_turns(list(self._streams.views())):
            found += [
                view.name
                for view in part
                if view.name.lower() in lowered
                and self._authorizer.sees(who, Operation.READ, Resource.STREAM, view.name)
            ]
        return sorted(found)

    def sees(self, who: Principal, stream_name: str) -> bool:
        """Whether `who` may see the table of a stream."""
        return self._authorizer.sees(who, Operation.DESCRIBE, Resource.STREAM, stream_name)

    def may_write(self, who: Principal, subject: str) -> bool:
        """Whether `who` may write to the tables of a topic."""
        return self._authorizer.sees(who, Operation.WRITE, Resource.STREAM, subject)

    def is_stream(self, owner: Owner) -> bool:
        """Whether the table belongs to a stream that exists, after `subject`."""
        return self.stream_number(owner) is not None

    def stream_number(self, owner: Owner) -> int | None:
        """Return the number of the table's stream; None if it belongs to no stream that exists, after `subject`."""
        view = None if owner.stream_id is None else self._streams.peek_id(owner.stream_id.bytes)
        return None if view is None else view.stream.number

    def require(self, who: Principal, operations: Collection[Operation], subject: str, name: Name) -> None:
        """Raise unless `who` may do the operations to the table.

        Raises:
            Refused: it may not even see the table: it may do none of the operations, nor describe the stream.
            Denied: it may see it.
        """
        if not any(
            self._authorizer.sees(who, operation, Resource.STREAM, subject)
            for operation in (Operation.DESCRIBE, *operations)
        ):
            for operation in operations:
                self._authorizer.allows(who, operation, Resource.STREAM, subject)  # for the audit log
            raise absent(name)
        for operation in operations:
            if not self._authorizer.allows(who, operation, Resource.STREAM, subject):
                raise Denied(f"{who} may not {operation.value} {Resource.STREAM.value} {subject!r}")

    async def visible(self, who: Principal, tables: Sequence[Listed]) -> list[Name]:
        """Return the tables that `who` may see, by the streams in whose folders they lie, whatever their names. Raises `Unavailable`.

        The folder has 8 digits of the stream's id. If several streams have the same digits, `who` must see all of them.
        """
        suffixes = {table.name: suffix for table in tables if (suffix := stream_suffix(table.folder or ""))}
        streams = (await self.planned()).by_suffix
        # Streams that this server has not heard of, or deleted ones:
        if any(suffix not in streams for suffix in suffixes.values()):
            await self._streams.catch_up()
            streams = (await self.planned()).by_suffix
        found = []
        async for part in in_turns(tables, AT_ONCE):
            for table in part:
                subjects = streams.get(suffixes.get(table.name, ""), (".".join(table.name),))
                if all(self.sees(who, subject) for subject in subjects):
                    found.append(table.name)
        return found


def operations_of(updates: Sequence[Any]) -> set[Operation]:
    """Return the operations that updates (Any: JSON) of an existing table need."""
    actions = {str(update.get("action")) for update in updates if isinstance(update, dict)}
    needed = {Operation.ALTER} if actions - _DATA_ACTIONS - _SILENT_ACTIONS else set()
    return needed | ({Operation.WRITE} if actions & (_DATA_ACTIONS | _SILENT_ACTIONS) or not actions else set())


def unchanged(expected: Owner | None) -> Any:
    """Return an `OwnerCheck` that refuses another table than the one whose rights were checked."""

    def check(found: Owner | None) -> None:
        if found != expected:
            raise forbidden("another table has this name now; try again")

    return check
