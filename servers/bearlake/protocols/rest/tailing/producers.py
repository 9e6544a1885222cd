"""Idempotent producers, kept by name in the metadata store. The store's commit decides each append, on whichever server it arrives.

This server caches only the ids of names, so that a retry gets the same answer on another server or after a restart.
Source: Durable Streams Protocol 1.0, section 5.2.1; `metadata/producers.py` (the rules, `BATCH_IN_STEP`).
"""

import asyncio
import json
from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum, auto

from bearlake.metadata.model import BATCH_IN_STEP, BATCH_NAMED, NamedProducer, PartitionKey
from bearlake.metadata.producer_ids import ProducerIds
from bearlake.protocols.rest.problems import Problem
from bearlake.streams.append import Append

_PREFIX = "http/"
_KNOWN_S = 600.0
"""Longest time that a cached id is used; the store forgets names only after days without use."""


class Decision(Enum):
    """The outcome of an append."""

    ACCEPT = auto()
    DUPLICATE = auto()
    STALE_EPOCH = auto()
    EPOCH_STARTS_AT_ZERO = auto()
    GAP = auto()


@dataclass(frozen=True, slots=True)
class Claim:
    """The producer headers of an append."""

    id: str
    epoch: int
    sequence: int

    def __str__(self) -> str:
        """Return JSON, for comparison."""
        return json.dumps([self.id, self.epoch, self.sequence])

    def sign(self, append: Append, producer_id: int) -> Append:
        """Return the append with this claim, for the commit to check."""
        return append._replace(
            producer_id=producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            flags=append.flags | BATCH_NAMED | BATCH_IN_STEP,
        )


def decide(claim: Claim, last: NamedProducer) -> Decision:
    """Decide an append, given the newest append of its producer."""
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
    """Build the error for a rejected append."""
    if decision is Decision.STALE_EPOCH:
        return Problem(403, 403, f"the producer's epoch is {last.epoch}", {"Producer-Epoch": str(last.epoch)})
    if decision is Decision.EPOCH_STARTS_AT_ZERO:
        return Problem(400, 400, "Producer-Seq: a new epoch starts at 0")
    assert decision is Decision.GAP
    expected = last.last_sequence + 1
    numbers = {"Producer-Expected-Seq": str(expected), "Producer-Received-Seq": str(claim.sequence)}
    return Problem(409, 409, f"Producer-Seq: expected {expected}", numbers)


@dataclass(slots=True)
class _Name:
    """A name's id and its cache expiry (loop time). Waiters proceed in order of arrival."""

    producer_id: int = -1
    until_s: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Producers:
    """A cache of producer ids by name; evicts the least recently used."""

    def __init__(self, ids: ProducerIds, count_max: int) -> None:
        self._ids = ids
        self._count_max = count_max
        self._names: OrderedDict[tuple[PartitionKey, str], _Name] = OrderedDict()

    async def id_of(self, partition: PartitionKey, claim: Claim) -> int:
        """Return the producer's id in the partition. Raises `NotFound`, `Unavailable`."""
        name = self._name(partition, claim)
        now_s = asyncio.get_running_loop().time()
        if now_s >= name.until_s or name.lock.locked():
            async with name.lock:
                if now_s >= name.until_s:
                    await self._ask(partition, claim, name)
        return name.producer_id

    async def last(self, partition: PartitionKey, claim: Claim) -> NamedProducer:
        """Return the producer's newest append from the store. Raises `NotFound`, `Unavailable`."""
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
