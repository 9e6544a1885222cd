"""The Produce requests of one client for one topic, whose rights and rules are known: they are taken without a question."""

from struct import Struct

from bearlake.kernel.buffers import Buffer, view_of
from bearlake.kernel.kafka import BoundTransaction, PlainRules, ProduceEntry
from bearlake.kernel.kafka.intake import Batches, take
from bearlake.kernel.kafka.produce_results import ProduceResults
from bearlake.kernel.kafka.versions import TOPIC_IDS, check_version
from bearlake.kernel.log import Hold
from bearlake.kernel.log.buffer import WriteBuffer

_HEAD = Struct(">ihhi")


class ProduceBinding:
    """What the requests have in common, resolved once. Immutable; its owner forgets it when one of the answers may have changed."""

    __slots__ = ("_lead", "_rules", "_size_max", "_topic", "_transaction", "_version")

    def __init__(
        self,
        version: int,
        lead: bytes,
        size_max: int,
        topic: str | bytes,
        rules: PlainRules,
        transaction: BoundTransaction | None,
        /,
    ) -> None:
        """`version`, `lead` and `size_max`: as for `take_produces`. `topic`: a name, or from version 13 on an id.

        `rules`: of the topic, with times relative to now. `transaction`: None for requests without a transactional id.

        Raises `Unsupported` if the version is not in 3-13.
        """
        check_version(version)
        if not isinstance(lead, bytes) or not isinstance(topic, bytes if version >= TOPIC_IDS else str):
            raise TypeError("a lead is bytes, and a topic is a str, or from version 13 on bytes")
        if len(rules) != 7 or len(rules[0]) != 16:
            raise ValueError("rules: a tuple of 7, and a stream id of 16 bytes")
        self._version = version
        self._lead = lead
        self._size_max = size_max
        self._topic = topic
        self._rules = rules
        if transaction is not None:
            if len(transaction) != 3:
                raise ValueError("a transaction is a tuple of 3")
            transactional_id, producer_id, flags = transaction
            if not isinstance(transactional_id, str) or producer_id < 0 or flags < 0:
                raise ValueError("a transaction: a str, a producer id and flags")
            transactional_id.encode()
        self._transaction = transaction

    def take(
        self,
        buffer: WriteBuffer,
        call: ProduceResults,
        memory: Buffer,
        hold: Hold | None,
        start: int,
        end: int,
        count_max: int,
        check_max: int,
        now_ms: int,
        seen: int,
        /,
    ) -> tuple[int, int, int]:
        """Take requests as `take_produces` does, if they name this topic alone and have only batches that its rules admit.

        They have the transactional id of the binding. Its producer's batches are admitted if they would be without their attribute.

        Returns the end of the last request that was taken; what is known of the next one; and the bytes of compressed records that were
        checked. Known is -1: it needs another buffer; its bytes, with the length before them, if it has the same header and its end has
        not arrived; otherwise 0.
        """
        bound = _Bound(self._topic, self._rules_at(now_ms))
        batches = Batches(view_of(memory), bound, check_max, self._transaction)
        position, is_full = take(
            buffer, call, batches, hold, start, end, self._version, self._lead, self._size_max, count_max, seen
        )
        return position, -1 if is_full else self._incomplete(batches.view[position:end]), batches.checked_bytes

    def _rules_at(self, now_ms: int) -> PlainRules:
        stream_id, first_key, partition_count, bytes_max, earliest, latest, checks_records = self._rules
        return stream_id, first_key, partition_count, bytes_max, earliest + now_ms, latest + now_ms, checks_records

    def _incomplete(self, rest: memoryview) -> int:
        """The size of the request at the beginning of `rest`, if more of it is to come and its header is known."""
        if len(rest) < _HEAD.size + len(self._lead):
            return 0
        size, key, version, _ = _HEAD.unpack_from(rest)
        is_alike = (
            key == 0 and version == self._version and rest[_HEAD.size : _HEAD.size + len(self._lead)] == self._lead
        )
        least = max(len(rest) - 3, _HEAD.size - 4 + len(self._lead))
        return size + 4 if is_alike and least <= size <= self._size_max else 0


class _Bound:
    """Admits what the rules of one topic admit."""

    def __init__(self, topic: str | bytes, rules: PlainRules) -> None:
        self._topic = topic
        self._rules = rules

    def transaction(self, _: str | None) -> bool:
        return False

    def rules(self, topic: str | bytes) -> PlainRules | None:
        return self._rules if topic == self._topic else None

    def flags(self, entry: ProduceEntry) -> int:
        return -1
