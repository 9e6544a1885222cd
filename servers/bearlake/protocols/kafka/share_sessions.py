"""Share sessions: which partitions a member of a share group fetches from this server (KIP-932).

A session belongs to a connection, and ends with it. Each request names the next epoch, so that none is lost or applied twice. Clients
that find no session here, because another server had it, open a new one.
"""

import binascii
from base64 import urlsafe_b64decode
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bearlake.protocols.kafka.codec import UUID_ZERO
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.streams.groups.share.settings import ShareGroupSettings

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
_EPOCH_MAX = 2**31 - 1
_UUID_DIGITS = 22
"""Length of a UUID in base64."""

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

    def in_turn(self) -> Sequence[TopicPartition]:
        """Return the partitions; each request begins with the next one, so that none starves."""
        items = list(self.partitions)
        if not items:
            return items
        first = self.epoch % len(items)
        return items[first:] + items[:first]


class ShareSessions:
    """The sessions of one server. Use it from the event loop's thread only."""

    def __init__(self, limits: ShareGroupSettings) -> None:
        self._limits = limits
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_peer: dict[str, set[SessionKey]] = {}
        self.partition_count = 0
        """Partitions of all sessions."""

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, key: SessionKey, peer: str) -> ShareSession:
        """Open a session in place of the member's former one. Raises `SessionProblem`."""
        self.close(key)
        is_full = len(self._sessions) >= self._limits.session_count_max
        if is_full or len(self._by_peer.get(peer, ())) >= self._limits.session_per_connection_max:
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

    def has(self, key: SessionKey, session: ShareSession) -> bool:
        """Whether the session is still open."""
        return self._sessions.get(key) is session

    def change(
        self, session: ShareSession, added: Collection[TopicPartition], forgotten: Collection[TopicPartition]
    ) -> None:
        """Add partitions to a session, and remove others. Raises `SessionProblem` if it would have too many; then nothing changes."""
        limits = self._limits
        present = session.partitions
        left_out = set(forgotten)
        gone = [item for item in left_out if item in present]
        fresh = {item: None for item in added if item not in present and item not in left_out}
        count = len(fresh) - len(gone)
        if len(present) + count > limits.session_partition_count_max:
            text = f"A share session has at most {limits.session_partition_count_max} partitions."
            raise SessionProblem(ErrorCode.INVALID_REQUEST, text)
        if self.partition_count + count > limits.session_partition_total_max:
            text = f"The share sessions of a server have at most {limits.session_partition_total_max} partitions."
            raise SessionProblem(ErrorCode.SHARE_SESSION_LIMIT_REACHED, text)
        present.update(fresh)
        for item in gone:
            del present[item]
        self.partition_count += count

    def close(self, key: SessionKey) -> ShareSession | None:
        """Close a session; returns it, None if there is none."""
        session = self._sessions.pop(key, None)
        if session is not None:
            self.partition_count -= len(session.partitions)
            keys = self._by_peer[session.peer]
            keys.discard(key)
            if not keys:
                del self._by_peer[session.peer]
        return session

    def disconnected(self, peer: str) -> list[tuple[SessionKey, ShareSession]]:
        """Close the sessions of a connection that has ended; returns them."""
        keys = list(self._by_peer.get(peer, ()))
        return [(key, session) for key in keys if (session := self.close(key)) is not None]


def is_member_id(text: str) -> bool:
    """Whether the text is a UUID as Kafka writes it: 16 bytes in URL-safe base64, with or without padding."""
    digits = text.rstrip("=")
    if len(digits) != _UUID_DIGITS or len(text) > _UUID_DIGITS + 2:
        return False
    try:
        return len(urlsafe_b64decode(digits + "==")) == len(UUID_ZERO)
    except (ValueError, binascii.Error):
        return False
