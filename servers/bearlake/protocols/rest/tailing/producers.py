"""Idempotent producers: by name in the metadata store, whose commit decides what becomes of an append, on whatever server it comes in.

This server keeps the ids that names have, nothing else: a retry after a restart, or on another server, is answered as it would be here.
Source: Durable Streams Protocol 1.0, section 5.2.1; `metadata/producers.py` (the rules, `BATCH_IN_STEP`).
"""

import asyncio
import json
from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum, auto

from bearlake.metadata import ProducerIds
from bearlake.metadata.model import BATCH_IN_STEP, BATCH_NAMED, NamedProducer, PartitionKey
from bearlake.protocols.rest.problems import Problem
from bearlake.streams.append import Append

_PREFIX = "http/"
_KNOWN_S = 600.0
"""Longest time that an id is used without asking for it again; names that nobody asks for are forgotten after days."""


class Decision(Enum):
    """What to do with an append."""

    ACCEPT = auto()
    DUPLICATE = auto()
    STALE_EPOCH = auto()
    EPOCH_STARTS_AT_ZERO = auto()
    GAP = auto()


@dataclass(frozen=True, slots=True)
class Claim:
    """What an append says of its producer."""

    id: str
    epoch: int
    sequence: int

    def __str__(self) -> str:
        """As JSON, to be compared."""
        return json.dumps([self.id, self.epoch, self.sequence])

    def sign(self, append: Append, producer_id: int) -> Append:
        """The append, so that the commit checks it."""
        return append._replace(
            producer_id=producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            flags=append.flags | BATCH_NAMED | BATCH_IN_STEP,
        )


def decide(claim: Claim, last: NamedProducer) -> Decision:
    """What becomes of an append after its producer's newest one."""
    if last.epoch < 0:
        return Decision.ACCEPT if claim.sequence == 0 else Decision.GAP
    if claim.epoch < last.epoch:
        return Decision.STALE_EPOCH
    if claim.epoch > last.epoch:
        return Decision.ACCEPT if claim.sequence == 0 else Decision.EPOCH_STARTS_AT_ZERO
    if claim.sequence <= last.last_sequence:
        return Decision.DUPLICATE
    return Decision.ACCEPT if claim.sequence == last.last_sequence + 1 else Decision.GAP


def problem_of(decision: Decision, claim: Claim, last: NamedProducer) -> Problem:
    """How a refused append is answered."""
    if decision is Decision.STALE_EPOCH:
        return Problem(403, 403, f"the producer's epoch is {last.epoch} by now", {"Producer-Epoch": str(last.epoch)})
    if decision is Decision.EPOCH_STARTS_AT_ZERO:
        return Problem(400, 400, "Producer-Seq: a new epoch starts at 0")
    assert decision is Decision.GAP
    expected = last.last_sequence + 1
    numbers = {"Producer-Expected-Seq": str(expected), "Producer-Received-Seq": str(claim.sequence)}
    return Problem(409, 409, f"Producer-Seq: expected {expected}", numbers)


@dataclass(slots=True)
class _Name:
    """A name's id, and until when it is used (loop time). Who waits for it goes on in the order of coming."""

    producer_id: int = -1
    until_s: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Producers:
    """Ids of names; those that have been quiet for longest are asked for again when there are too many."""

    def __init__(self, ids: ProducerIds, count_max: int) -> None:
        self._ids = ids
        self._count_max = count_max
        self._names: OrderedDict[tuple[PartitionKey, str], _Name] = OrderedDict()

    async def id_of(self, partition: PartitionKey, claim: Claim) -> int:
        """The producer's id in the partition. Raises `NotFound`, `Unavailable`."""
        name = self._name(partition, claim)
        now_s = asyncio.get_running_loop().time()
        if now_s >= name.until_s or name.lock.locked():
            async with name.lock:
                if now_s >= name.until_s:
                    await self._ask(partition, claim, name)
        return name.producer_id

    async def last(self, partition: PartitionKey, claim: Claim) -> NamedProducer:
        """The producer's newest append, as of now. Raises `NotFound`, `Unavailable`."""
        return await self._ask(partition, claim, self._name(partition, claim))

    async def _ask(self, partition: PartitionKey, claim: Claim, name: _Name) -> NamedProducer:
        found = await self._ids.named(partition, _PREFIX + claim.id)
        name.producer_id = found.producer_id
        name.until_s = asyncio.get_running_loop().time() + _KNOWN_S
        return found

    def _name(self, partition: PartitionKey, claim: Claim) -> _Name:
        key = (partition, claim.id)
        name = self._names.setdefault(key, _Name())
        self._names.move_to_end(key)
        while len(self._names) > self._count_max:
            self._names.popitem(last=False)
        return name
