"""Quotas of one Kafka connection: when its next request may begin, and how long its client waits after a request.

    before   a request waits, unread, while its client owes a quota that limits the request, whichever connection used that quota. Produce
             and Fetch wait for bytes and time, other requests for time. Logins, ApiVersions and requests about groups do not wait
    after    the response says how long the client should wait (`throttle_time_ms`), and the socket is not read meanwhile (KIP-219)

A Produce request is charged when it begins to arrive, other requests when they are done. So a waiting Produce request holds no memory:
its connection has read only its head. While a client's Produce requests are limited, they are read and handled one by one, so that each
response can say how long to wait.

A client may give up a waiting Produce request, close its connection and send the request again. The abandoned request is dropped: it would
be stored twice, and use the quota that the repeated request needs. Only a client with acks=0 may close its connection without an answer.

Requests that were read while nothing was owed are checked again before they begin. Waiting requests continue one after another, over all
connections of their client (`streams/quotas/lines.py`).

Time is charged for everything that the event loop does for a connection: it takes requests from the socket, handles them, and writes
answers. Two things are not charged: the work of the loop and the operating system before they call the connection, and the flush, which
many clients share.

A Fetch request pays in advance for as many bytes as its connection's previous Fetch request found; the charge is corrected at its end. So
concurrent readers take turns, and no reader repeats its reads for answers that are empty because another reader was faster.

Requests about a group wait for time only after their answers, for at most `MEMBER_WAIT_S_MAX`. So do all requests on the connection of a
group's member: a client that uses much time must not make the group expel members of the same user.

Source: KIP-13, KIP-124 (time), KIP-219, KIP-599 (mutations).
"""

import math
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from bearlake.metadata.quotas import QuotaKey
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.context import Caller
from bearlake.protocols.kafka.handlers import fetch, produce
from bearlake.protocols.kafka.handlers.produce_call import Requester
from bearlake.protocols.kafka.messages import FetchResponse
from bearlake.protocols.kafka.request_kinds import LOGIN
from bearlake.protocols.kafka.slot import Slot
from bearlake.serving.slabs import Slab
from bearlake.streams.principal import CLIENT_ID_LENGTH_MAX, Principal, with_client_id
from bearlake.streams.quotas.control import QuotaControl
from bearlake.streams.quotas.lines import Waiter
from bearlake.streams.quotas.timing import Stopwatch, Timed
from bearlake.streams.quotas.usage import Usage

_MUTATIONS = frozenset({ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS})
_READS = frozenset({ApiKey.FETCH.value, ApiKey.SHARE_FETCH.value})
_BYTES = {
    ApiKey.PRODUCE.value: (QuotaKey.PRODUCER_BYTE_RATE,),
    ApiKey.FETCH.value: (QuotaKey.CONSUMER_BYTE_RATE,),
    ApiKey.SHARE_FETCH.value: (QuotaKey.CONSUMER_BYTE_RATE,),
}
"""The rates for which requests wait before they begin."""
_PRODUCE = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE)
_OF_MEMBERS = frozenset(
    {
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        ApiKey.FIND_COORDINATOR,
        ApiKey.HEARTBEAT,
        ApiKey.JOIN_GROUP,
        ApiKey.LEAVE_GROUP,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.SYNC_GROUP,
    }
)
_UNHELD = _OF_MEMBERS | LOGIN | {ApiKey.API_VERSIONS}
"""Requests that may begin while time is owed."""
_JOINED = frozenset(
    {
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        ApiKey.HEARTBEAT,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
    }
)
"""Requests whose success proves that the client is a member of a group."""
MEMBER_WAIT_S_MAX = 1.0
"""Longest wait (s) after a request about a group, as Kafka's longest wait for time. The shortest session of a member has six seconds."""

_CLIENT_ID = struct.Struct(">8xh")
"""The length of the client id in the head of a request, after API key, version and correlation id."""
_ORDINARY = (b"\xff\xff", b"\0\0")
"""Between the client id and acks of a Produce request: no transactional id; from version 9 on, no tagged fields and no transactional id."""
_ACKS_END = 4
"""Where acks ends, in bytes after the client id."""


class ThrottledConnection(Protocol):
    """The connection."""

    who: Principal
    waiter: Waiter
    """The connection in lines."""

    @property
    def is_open(self) -> bool:
        """Whether anything can still be sent to the client."""

    @property
    def is_logged_in(self) -> bool:
        """Whether `who` is the client: it has logged in, or need not."""

    def throttle(self, wait_s: float) -> bool:
        """Read no more requests for that time (s); returns whether the connection waits."""

    def end_quota_wait(self) -> None:
        """Read requests again."""

    def close_if_abandoned(self) -> bool:
        """Close if the client has closed its end; returns whether it has."""


class Throttling:
    """What the quotas say about one connection."""

    __slots__ = (
        "_begun",
        "_connection",
        "_fetched_bytes",
        "_is_limited",
        "_is_member",
        "_known",
        "_quotas",
        "_watch",
    )

    def __init__(self, quotas: QuotaControl, connection: ThrottledConnection) -> None:
        self._quotas = quotas
        self._connection = connection
        self._begun: Usage | None = None
        """What the Produce request that is arriving was charged to; None: it was not charged yet."""
        self._known: tuple[Usage, Principal] | None = None
        self._is_limited = False
        self._is_member = False
        """Whether the client is a member of a group and says so on this connection."""
        self._fetched_bytes = 0
        """Bytes of records that the last Fetch request found."""
        self._watch = Stopwatch(quotas, connection.who)
        connection.waiter.resume = partial(self.run, connection.end_quota_wait)

    def run(self, work: Callable[[], None]) -> None:
        """Do some work for the connection now, and charge its time."""
        usage, connection = self._quotas.usage, self._connection
        if usage is not None and usage.is_timed and connection.is_logged_in:
            self._watch.run(connection.who, work)
        else:
            work()

    async def work_through(self, caller: Caller, key: int, work: Callable[[], Awaitable[None]]) -> None:
        """Handle a request, and charge the time of its steps. A login costs no time, because its caller is not known yet."""
        usage = self._quotas.usage
        if usage is None or not usage.is_timed or key in LOGIN:
            await work()
        else:
            await Timed(self._watch, caller.who, work())

    def connected(self, address: str) -> float:
        """Note the new connection of an address; returns how long (s) it waits before it is read."""
        usage = self._quotas.usage
        wait_s = 0.0 if usage is None else usage.connected(address)
        self._connection.throttle(wait_s)
        return wait_s

    def limits_produce(self, usage: Usage, who: Principal) -> bool:
        """Whether the client's Produce requests are limited."""
        known = self._known
        if known is None or known[0] is not usage or known[1] is not who:
            self._known = (usage, who)
            self._is_limited = bool(usage.limits_of(who, *_PRODUCE))
        return self._is_limited

    def holds(self, usage: Usage, begun: memoryview, size: int) -> bool:
        """Whether the next request must wait; the connection continues when the wait is over.

        `begun`: what has arrived of the request, which has `size` bytes. The request waits until this names the client.
        """
        key = int.from_bytes(begun[:2], "big")
        limits = self._limits(usage, key)
        self._watch.lap()
        if self._connection.throttle(0.0):
            return True
        if not limits or self._begun is usage:
            return False
        if len(begun) < min(size, _CLIENT_ID.size):
            return True
        end = _CLIENT_ID.size + (max(_CLIENT_ID.unpack_from(begun)[0], 0) if size >= _CLIENT_ID.size else 0)
        if len(begun) < min(size, end + _ACKS_END):
            return True
        who = self._named(str(begun[_CLIENT_ID.size : end], "utf-8", "replace"))
        if not self._quotas.lines.admits(self._connection.waiter, who, limits, begins=key == ApiKey.PRODUCE):
            return True
        if key == ApiKey.PRODUCE and self.limits_produce(usage, who):
            if _awaits_answer(begun, end) and self._connection.close_if_abandoned():
                return True
            self._begun = usage
            usage.charge(who, QuotaKey.PRODUCER_BYTE_RATE, size)
        return False

    def holds_read(self, key: int) -> bool:
        """Whether the next request of its lane, which was read already, must wait. Nothing waits once the client has gone."""
        usage, connection = self._quotas.usage, self._connection
        if usage is None or not connection.is_open:
            return False
        if connection.throttle(0.0):
            return True
        return not self._quotas.lines.admits(connection.waiter, connection.who, self._limits(usage, key))

    def _limits(self, usage: Usage, key: int) -> tuple[QuotaKey, ...]:
        """What limits the beginning of a request."""
        limits = _BYTES.get(key, ())
        is_timed = usage.is_timed and not self._is_member and key not in _UNHELD
        return (*limits, QuotaKey.REQUEST_PERCENTAGE) if is_timed else limits

    def _time_wait_s(self, wait_s: float, key: int) -> float:
        return min(wait_s, MEMBER_WAIT_S_MAX) if self._is_member or key in _OF_MEMBERS else wait_s

    def _named(self, client_id: str) -> Principal:
        """Note the client id of the request that is arriving: quotas of client ids hold from the first request on."""
        connection = self._connection
        if connection.who.client_id != client_id[:CLIENT_ID_LENGTH_MAX]:
            connection.who = with_client_id(connection.who, client_id)
        return connection.who

    def receive(
        self,
        connection: Requester,
        slot: Slot,
        caller: Caller,
        correlation_id: int,
        frame: memoryview,
        position: int,
        slab: Slab,
    ) -> None:
        """Handle a Produce request as `produce.receive`; its response says how long its client should wait. Raises `Corrupt`."""
        usage = self._quotas.usage
        assert usage is not None
        self._begun = None
        slot.owed_ms = partial(self._owed_ms, caller.who)
        produce.receive(connection, slot, caller, correlation_id, frame, position, slab)
        self._watch.lap()
        usage.charge_time(caller.who, 0.0)  # nothing more, but the client counts as throttled if it owes time
        self._connection.throttle(self._produce_wait_s(usage, caller.who))

    def _produce_wait_s(self, usage: Usage, who: Principal) -> float:
        time_s = usage.due_s(who, QuotaKey.REQUEST_PERCENTAGE)
        return max(usage.due_s(who, QuotaKey.PRODUCER_BYTE_RATE), self._time_wait_s(time_s, ApiKey.PRODUCE))

    def _owed_ms(self, who: Principal) -> int:
        """The time (ms) until the client owes nothing, whatever connection used its quota. It begins with the answer to Produce."""
        usage = self._quotas.usage
        if usage is None:
            return 0
        self._watch.lap()
        wait_s = self._produce_wait_s(usage, who)
        self._connection.throttle(wait_s)
        return _milliseconds(wait_s)

    async def handled(self, caller: Caller, key: int, work: Awaitable[Any]) -> Any:
        """Handle another request; return its response, which says how long to wait if it can."""
        who = caller.who
        if key in LOGIN:
            return await work
        response = await (self._fetched(who, work) if key == ApiKey.FETCH else work)
        if key in _JOINED:
            self._is_member = response.error_code == 0
        usage = self._quotas.usage  # the quotas may have changed meanwhile
        if usage is None:
            return response
        self._watch.lap()
        wait_s = self._time_wait_s(usage.charge_time(who, 0.0), key) if usage.is_timed else 0.0
        if key == ApiKey.SHARE_FETCH:  # what is acquired is sent, and paid afterwards
            usage.charge(who, QuotaKey.CONSUMER_BYTE_RATE, fetch.size_of(response))
        if key in _READS:
            wait_s = max(wait_s, usage.due_s(who, QuotaKey.CONSUMER_BYTE_RATE))
        elif key in _MUTATIONS:
            wait_s = max(wait_s, usage.due_s(who, QuotaKey.CONTROLLER_MUTATION_RATE))
        if wait_s > 0 and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = _milliseconds(wait_s)
        self._connection.throttle(wait_s)
        return response

    async def _fetched(self, who: Principal, work: Awaitable[FetchResponse]) -> FetchResponse:
        """Read for a Fetch request, and charge the bytes that it found.

        The response is emptied if others have used up the quota meanwhile, and it has more than twice the bytes that were paid in advance.
        """
        usage = self._quotas.usage
        if usage is None:
            return await work
        expected = self._fetched_bytes
        with self._advanced(usage, who, expected):
            response = await work
        self._fetched_bytes = size = fetch.size_of(response)
        usage = self._quotas.usage
        if usage is None:
            return response
        if size > 2 * expected and usage.due_s(who, QuotaKey.CONSUMER_BYTE_RATE) > 0:
            fetch.empty(response)
            size = 0
        usage.charge(who, QuotaKey.CONSUMER_BYTE_RATE, size)
        return response

    @contextmanager
    def _advanced(self, usage: Usage, who: Principal, size: int) -> Iterator[None]:
        """Let a Fetch request pay in advance. At the end, give the bytes back, and let waiting requests check the quota soon."""
        try:
            with usage.advanced(who, QuotaKey.CONSUMER_BYTE_RATE, size):
                yield
        finally:
            if size:
                self._quotas.lines.look_at(who, self._limits(usage, ApiKey.FETCH))


def _awaits_answer(begun: memoryview, end: int) -> bool:
    """Whether the Produce request whose client id ends at `end` certainly asks for an answer: its acks is not 0.

    Without tagged fields and a transactional id, which no client sends that is served, two bytes are before acks in all versions.
    """
    acks = begun[end + 2 : end + _ACKS_END]
    return bytes(begun[end : end + 2]) in _ORDINARY and len(acks) == 2 and any(acks)


def _milliseconds(seconds: float) -> int:
    return math.ceil(seconds * 1000)
