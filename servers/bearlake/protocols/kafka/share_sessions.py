"""Share sessions: which partitions a member of a share group fetches from this server (KIP-932).

A session belongs to a connection, and ends with it. Each request names the next epoch, so that none is lost or applied twice. Clients
that find no session here, because another server had it, open a new one.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bearlake.protocols.kafka.errors import ErrorCode

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
_EPOCH_MAX = 2**31 - 1

TopicPartition = tuple[bytes, int]
"""Topic id and partition index."""


class SessionKey(NamedTuple):
    """A member of a group."""

    group: str
    member: str


class SessionProblem(Exception):
    """The request does not fit the session."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(slots=True, kw_only=True)
class ShareSession:
    """One session."""

    peer: str
    """The connection: the client's address and port."""
    epoch: int = 1
    """The epoch of the next request."""
    partitions: OrderedDict[TopicPartition, None] = field(default_factory=OrderedDict)

    def change(self, added: Iterable[TopicPartition], forgotten: Iterable[TopicPartition], count_max: int) -> None:
        """Add and remove partitions. Raises `SessionProblem`."""
        for item in added:
            self.partitions[item] = None
        for item in forgotten:
            self.partitions.pop(item, None)
        if len(self.partitions) > count_max:
            raise SessionProblem(ErrorCode.INVALID_REQUEST, f"A share session has at most {count_max} partitions.")

    def in_turn(self) -> Sequence[TopicPartition]:
        """Return the partitions; each request begins with the next one, so that none starves."""
        items = list(self.partitions)
        if not items:
            return items
        first = self.epoch % len(items)
        return items[first:] + items[:first]


class ShareSessions:
    """The sessions of one server. Use it from the event loop's thread only."""

    def __init__(self, count_max: int, partition_count_max: int) -> None:
        self._count_max = count_max
        self.partition_count_max = partition_count_max
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_peer: dict[str, set[SessionKey]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, key: SessionKey, peer: str) -> ShareSession:
        """Open a session in place of the member's former one. Raises `SessionProblem`."""
        self.close(key)
        if len(self._sessions) >= self._count_max:
            raise SessionProblem(ErrorCode.SHARE_SESSION_LIMIT_REACHED, "The limit of share sessions has been reached.")
        session = self._sessions[key] = ShareSession(peer=peer)
        self._by_peer.setdefault(peer, set()).add(key)
        return session

    def next(self, key: SessionKey, epoch: int, peer: str) -> ShareSession:
        """Return the session of a request, which has its next epoch or closes it. Raises `SessionProblem`."""
        session = self._sessions.get(key)
        if session is None or session.peer != peer:
            raise SessionProblem(ErrorCode.SHARE_SESSION_NOT_FOUND, "The share session was not found.")
        if epoch != FINAL_EPOCH:
            if epoch != session.epoch:
                raise SessionProblem(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "The share session epoch is invalid.")
            session.epoch = session.epoch + 1 if session.epoch < _EPOCH_MAX else 1
        return session

    def close(self, key: SessionKey) -> ShareSession | None:
        """Close a session; returns it, None if there is none."""
        session = self._sessions.pop(key, None)
        if session is not None:
            keys = self._by_peer[session.peer]
            keys.discard(key)
            if not keys:
                del self._by_peer[session.peer]
        return session

    def disconnected(self, peer: str) -> list[tuple[SessionKey, ShareSession]]:
        """Close the sessions of a connection that has ended; returns them."""
        keys = list(self._by_peer.get(peer, ()))
        return [(key, session) for key in keys if (session := self.close(key)) is not None]
