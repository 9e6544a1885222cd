"""Values of current tables, and what their properties say. Pure; no third-party types.

    bearlake.ends      JSON object, partition index → offset: every row is the newest of its key among the records below these offsets
    bearlake.current   JSON object: how the last round left the table (`CurrentState`)

Both are properties of the table, for the next round, and of each snapshot, for readers.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final, Protocol

from bearlake.errors import Corrupt
from bearlake.metadata.model import Stream
from bearlake.table.applied_tasks import ENDS_PROPERTY
from bearlake.table.column_tree import Column
from bearlake.table.model import DataFile

STATE_PROPERTY: Final = "bearlake.current"
OWN_FILE: Final = "/data/current-"
"""Part of the keys of data files that rounds write."""
_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentState:
    """How a round left a current table.

    `round`: its id. `source`: the UUID of the stream's table; `source_snapshot`: the snapshot that the round read; `sequence`: the sequence
    number of the snapshot that a round last read as a whole (-1: none): later rounds need no file so old. `is_whole`: this round did.
    `newest_us`: the largest timestamp (µs) so far. `at_ms`: when the newest round that read the stream's table as a whole looked at it;
    until there is one, when the first round did. `buckets`, `envelope`: the settings of the table.
    """

    round: str
    source: str
    source_snapshot: int
    sequence: int
    is_whole: bool
    newest_us: int
    at_ms: int
    buckets: int
    envelope: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentFile:
    """A data file of a current table: its key (empty: outside the object store), size (bytes), and bucket (-1: of no bucket)."""

    key: str
    size: int
    bucket: int

    @property
    def is_ours(self) -> bool:
        """Whether a round wrote it."""
        return OWN_FILE in self.key and self.bucket >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A data file of a stream's table, with the smallest and largest partition index and offset of its rows."""

    key: str
    size: int
    partition_min: int
    partition_max: int
    offset_min: int
    offset_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentView:
    """A stream's table and its current table at one moment.

    `table`: the UUID of the current table; `column_ids`: field ids of all typed columns that it has ever got. `starts`: up to where the
    current table is, `ends`: up to where the stream's table is, by partition index. `sources`: data files of the stream's table that may
    have rows in between. `state` None: no round has been made.
    """

    table: str
    column_ids: frozenset[int]
    location_key: str
    snapshot_id: int | None
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    sources: Sequence[SourceFile]
    files: Sequence[CurrentFile]
    state: CurrentState | None
    bucket_count: int
    source: str
    source_snapshot: int
    sequence: int

    @property
    def is_behind(self) -> bool:
        """Whether the stream's table has offsets that the current table has not."""
        return any(self.starts.get(index, 0) < end for index, end in self.ends.items())

    @property
    def is_ahead(self) -> bool:
        """Whether the current table has offsets that the stream's table has not: it was made of another one."""
        return any(self.ends.get(index, 0) < start for index, start in self.starts.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentChange:
    """What a round changes in a current table. `added`: files with their buckets; `removed`: keys; `ends`: where the table is then.

    `table`, `snapshot_id`: those of the view. A table that was made anew has no snapshot either, and may have other buckets.
    """

    table: str
    snapshot_id: int | None
    added: Sequence[tuple[DataFile, int]]
    removed: Sequence[str]
    ends: Mapping[int, int]
    state: CurrentState
    columns: Sequence[Column] = field(default_factory=tuple)


class CurrentStore(Protocol):
    """The current tables of all streams. Methods raise `Unavailable` if the catalog or the object store does not answer."""

    async def view(self, stream: Stream, derived: Stream) -> CurrentView | None:
        """Return both tables as they are now; None: one of them does not exist. `derived`: `naming.current_stream`.

        Raises `Conflict` if a table's columns are not ours, `Corrupt` if its properties are not.
        """

    async def commit(self, derived: Stream, change: CurrentChange) -> None:
        """Commit a round, in one atomic commit.

        Raises:
            Conflict: it is another table, or has another snapshot, than the round has read. The round may have been committed before.
            NotFound: the table was dropped.
            Unavailable: outcome unknown.
        """


def state_properties(ends: Mapping[int, int], state: CurrentState) -> dict[str, str]:
    """Return the properties of a table, and of its snapshot, after a round."""
    return {
        ENDS_PROPERTY: json.dumps({str(index): end for index, end in sorted(ends.items())}, separators=(",", ":")),
        STATE_PROPERTY: json.dumps({"version": _VERSION, **asdict(state)}, separators=(",", ":")),
    }


def read_state(properties: Mapping[str, str]) -> CurrentState | None:
    """Read the state from a table's properties. Raises `Corrupt`."""
    text = properties.get(STATE_PROPERTY)
    if text is None:
        return None
    try:
        fields = json.loads(text)
        if fields.pop("version") != _VERSION:
            raise ValueError("unknown version")
        return CurrentState(**fields)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Corrupt(f"table property {STATE_PROPERTY} is not what a round writes: {text[:100]!r}") from error


def current_summary(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that each snapshot of a current table has; empty for other tables."""
    names = (ENDS_PROPERTY, STATE_PROPERTY) if STATE_PROPERTY in properties else ()
    return {name: properties[name] for name in names if name in properties}
