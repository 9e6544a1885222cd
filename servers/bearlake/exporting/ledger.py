"""The ledger of exports: a topic of the target that says which offsets of the source became which offsets there.

An entry is written before the records that it describes, so whatever a killed export has sent is described. Where a partition of the
target ends, and the runs of the ledger, give the offset of the source at which to go on.

Records are JSON, in partition 0. A topic that is compacted by key keeps all of them, because each has a key of its own:

    key  ["CLUSTER", "TOPIC", PARTITION, OFFSET]    CLUSTER: of the source; OFFSET: of the target, of the first run
    {"version": 1, "session": …, "source_topic": id, "target_topic": id, "producer": [id, epoch, base], "runs": [[source, target], …],
     "doubt": [start, end]}     only if another process had planned other records for these offsets of the target, which may arrive there

    key  ["CLUSTER", "SESSION"]                     an export begins
    {"version": 1, "session": …}

An entry replaces all runs that begin at its first run's target offset or later. Entries that arrive after another session has begun are
ignored: they come from an export that was given up, and nothing that they describe was sent.
"""

import asyncio
import json
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bearlake.errors import Corrupt, Fenced, Unavailable
from bearlake.exporting.batches import Sender
from bearlake.exporting.mapping import Runs
from bearlake.exporting.sending import Refused, produced
from bearlake.exporting.settings import ExportTargetSettings
from bearlake.importing.cluster import Connections, SourceCluster, SourceTopic
from bearlake.importing.reading import pieces_of
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.records import codec as record_codec
from bearlake.streams.admission import UNCOMPRESSED_BYTES_MAX

CONFIGS = {"cleanup.policy": "compact"}
"""Configs of the ledger's topic."""
RUNS_OF_ENTRY_MAX = 2_000
"""Runs of one entry, about 64 KiB."""
_ENTRIES_OF_BATCH_MAX = 8
"""Entries of one batch, so that its size is below the usual limit of 1 MiB."""
PAUSE_S, PAUSE_S_MAX = 0.05, 1.0
"""Pauses between attempts while the leader refuses a batch; each is twice as long as the one before."""
_VERSION = 1

Place = tuple[str, int]
"""A topic's name and a partition."""


@dataclass(slots=True, kw_only=True)
class Account:
    """What the ledger says about a partition."""

    source_topic: str
    target_topic: str
    sender: Sender
    senders: set[int] = field(default_factory=set)
    """Producer ids of all entries."""
    runs: Runs
    doubt: tuple[int, int] | None = None
    """Offsets `[start, end)` of the target for which two processes had different plans, the last time that there were any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """New runs of a partition, in order: (source offset, target offset) of each."""

    place: Place
    source_topic: str
    target_topic: str
    sender: Sender
    runs: Sequence[tuple[int, int]]
    doubt: tuple[int, int] | None = None

    def parts(self) -> Iterator["Entry"]:
        """Yield entries of bounded size that say the same."""
        for at in range(0, len(self.runs), RUNS_OF_ENTRY_MAX):
            yield Entry(
                place=self.place, source_topic=self.source_topic, target_topic=self.target_topic, sender=self.sender,
                runs=self.runs[at : at + RUNS_OF_ENTRY_MAX], doubt=self.doubt,
            )  # fmt: skip


class _NoLeader(Unavailable):
    """The topic has no leader now."""


class Ledger:
    """The entries of one source, and the session of this process."""

    def __init__(
        self, cluster: SourceCluster, settings: ExportTargetSettings, topic: SourceTopic, source_id: str
    ) -> None:
        """`cluster`: the target; `topic`: the ledger there. `source_id`: the cluster id of the source."""
        self._cluster = cluster
        self._settings = settings
        self._topic = topic
        self._may_have_moved = False
        """Whether the leader may be another one than `_topic` says, because it did not answer or has refused."""
        self._source_id = source_id or "-"
        self._session = str(uuid.uuid4())
        self._begun = ""
        """The session that has begun last."""
        self._next = 0
        self.accounts: dict[Place, Account] = {}

    async def begin(self, connections: Connections) -> None:
        """Begin this process's session, and read the ledger. Raises as `produced` and `load`."""
        value = {"version": _VERSION, "session": self._session}
        await self._append([([self._source_id, self._session], value)], connections)
        await self.load()

    async def load(self) -> None:
        """Read what is new.

        Raises:
            Fenced: another export of the same source to the same target has begun.
            Corrupt: a record is not the ledger's.
            Denied, Invalid, Unavailable: as `pieces_of`.
        """
        try:
            await self._read()
        except Unavailable:
            self._may_have_moved = True
            raise
        if self._begun != self._session:
            raise Fenced("another export from the same source to the same target has begun; this one ends")

    async def _read(self) -> None:
        topic = await self._led()
        async with Connections(self._cluster) as connections:
            (bounds,) = await self._cluster.bounds(topic, connections)
        self._next = max(self._next, bounds.start)
        async for piece in pieces_of(self._cluster, topic, 0, self._next, bounds.stable):
            base = piece.end - 1 - int.from_bytes(piece.batch[23:27], "big")
            for delta, _, key, value, _ in record_codec.fields(piece.batch, UNCOMPRESSED_BYTES_MAX):
                if base + delta >= self._next:
                    self._take(base + delta, key, value)
        self._next = max(self._next, bounds.stable)

    async def _led(self) -> SourceTopic:
        """Return the ledger's topic; its leader is looked up if it may have moved. Raises `Denied`, `Unavailable`."""
        if self._may_have_moved:
            found = await self._cluster.topic(self._topic.name)
            if found is None or found.id != self._topic.id:
                raise Unavailable(f"{self._settings.PEER} does not have the ledger {self._topic.name!r} any more")
            if not found.leaders[0]:
                raise _NoLeader(f"{self._settings.PEER} has no leader of the ledger {self._topic.name!r}")
            self._topic, self._may_have_moved = found, False
        return self._topic

    def open(self, place: Place, source_topic: str, target_topic: str, sender: Sender) -> None:
        """Begin the account of a partition. It is in the ledger from its first run on."""
        runs = Runs(self._settings.runs_in_memory_max)
        account = Account(source_topic=source_topic, target_topic=target_topic, sender=sender, runs=runs)
        account.senders.add(sender.id)
        self.accounts[place] = account

    async def write(self, entries: Sequence[Entry], connections: Connections) -> None:
        """Make entries durable, and take them over. Raises as `produced`; then they may be stored."""
        records = [(self._key(part), self._value(part)) for entry in entries for part in entry.parts()]
        await self._append(records, connections)
        for entry in entries:
            self._apply(entry)

    async def _append(self, records: Sequence[tuple[list[Any], dict[str, Any]]], connections: Connections) -> None:
        now_ms = int(time.time() * 1000)
        for at in range(0, len(records), _ENTRIES_OF_BATCH_MAX):
            batch = record_codec.encode(
                [
                    record_codec.Record(
                        key=json.dumps(key).encode(), value=json.dumps(value).encode(), timestamp=now_ms
                    )
                    for key, value in records[at : at + _ENTRIES_OF_BATCH_MAX]
                ]
            )
            await self._produce(batch, connections)

    async def _produce(self, batch: bytes | bytearray, connections: Connections) -> None:
        """Make a batch durable. A leader refuses for a moment when the topic has just been created, or has moved to it."""
        loop, pause_s = asyncio.get_running_loop(), PAUSE_S
        deadline = loop.time() + self._settings.timeout_ms / 1000
        while True:
            try:
                topic = await self._led()
                connection = await connections.to(topic.leaders[0])
                await produced(connection, {topic.name: topic}, [{(topic.name, 0): batch}], self._settings)
            except Unavailable as error:
                self._may_have_moved = True
                if not _is_moving(error) or loop.time() + pause_s > deadline:
                    raise
            else:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _key(self, entry: Entry) -> list[Any]:
        return [self._source_id, *entry.place, entry.runs[0][1]]

    def _value(self, entry: Entry) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "session": self._session,
            "source_topic": entry.source_topic,
            "target_topic": entry.target_topic,
            "producer": list(entry.sender),
            "runs": entry.runs,
            **({} if entry.doubt is None else {"doubt": entry.doubt}),
        }

    def _take(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        if value is None:
            return
        try:
            words, found = json.loads(key or b""), json.loads(value)
            if words[0] != self._source_id:
                return
            if found["version"] != _VERSION:
                raise ValueError(f"version {found['version']}: expected {_VERSION}")
            if len(words) == 2:
                self._begun = found["session"]
            elif found["session"] == self._begun:
                _, name, index, _ = words
                self._apply(
                    Entry(
                        place=(name, int(index)),
                        source_topic=found["source_topic"],
                        target_topic=found["target_topic"],
                        sender=Sender(*map(int, found["producer"])),
                        runs=[(int(source), int(target)) for source, target in found["runs"]],
                        doubt=_doubt(found.get("doubt")),
                    )
                )
        except (ValueError, LookupError, TypeError) as error:
            raise Corrupt(
                f"the record at offset {offset} of the ledger {self._topic.name!r} is not an export's: {error}"
            ) from error

    def _apply(self, entry: Entry) -> None:
        account = self.accounts.get(entry.place)
        if account is None or (account.source_topic, account.target_topic) != (entry.source_topic, entry.target_topic):
            self.open(entry.place, entry.source_topic, entry.target_topic, entry.sender)
            account = self.accounts[entry.place]
        account.sender = entry.sender
        account.senders.add(entry.sender.id)
        account.doubt = entry.doubt or account.doubt
        if entry.runs:
            account.runs.cut(entry.runs[0][1])
        for source, target in entry.runs:
            account.runs.add(source, target)


def _is_moving(error: Unavailable) -> bool:
    """Return whether another leader is about to take the batch, which may be stored twice: a repeated entry says the same."""
    return isinstance(error, _NoLeader) or (
        isinstance(error, Refused) and error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    )


def _doubt(found: Any) -> tuple[int, int] | None:  # Any: JSON
    if found is None:
        return None
    start, end = map(int, found)
    return start, end
